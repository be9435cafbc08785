import type { JobStatus, RankOutcome, ThreadStack } from '../../src/protocol';
import { ACTIVITIES_NAMED, fileAndLine, otherRanks, sourcePath } from '../../src/views/frame_places';
import { plainTranslator } from '../support/fake_source';
import { frame, outcome, task } from '../support/jobs';
import { jobStatus } from '../support/records';

// The cases of tests/gpulayer/client/test_other_ranks.py: the browser says the same in the same words.
const TORCH = '/v/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py';

function mainThread(line: number, called: string | null = 'all_reduce'): ThreadStack[] {
  const frames = [frame('/w/source/main.py', line, 'train'), ...(called === null ? [] : [frame(TORCH, 2000, called)])];
  return [
    { is_main: false, frames: [frame('/w/source/reader.py', 1, 'read')] },
    { is_main: true, frames },
  ];
}

function ended(...ranks: Partial<RankOutcome>[]): JobStatus {
  const outcomes = ranks.map((values, rank) => outcome(rank, { exit_code: null, returned: false, ...values }));
  const half = Math.ceil(outcomes.length / 2);
  return jobStatus({
    state: 'failed',
    failure: {
      reason: 'rank',
      message: '',
      node: null,
      worker: null,
      rank: 0,
      device: null,
      exit_code: 1,
      signal: null,
      error: null,
      last_lines: [],
      lasting: false,
    },
    tasks: [task(0, { ranks: outcomes.slice(0, half) }), task(1, { ranks: outcomes.slice(half) })],
  });
}

const collateral = (stacks: ThreadStack[] = []): Partial<RankOutcome> => ({ collateral: true, stacks });

test('ranks that did the same share a line', () => {
  const three = Array.from({ length: 3 }, () => collateral(mainThread(14)));
  const status = ended({ exit_code: 1 }, ...three, collateral(mainThread(20, null)), collateral());
  expect(otherRanks(status, plainTranslator)).toEqual([
    'The other ranks were stopped: 1–5.',
    'Ranks 1–3 were in all_reduce, main.py:14.',
    'Rank 4 was at main.py:20 in train.',
  ]);
});

test('those that had ended, and those that failed as well, are told apart', () => {
  const status = ended({ exit_code: 1 }, collateral(), { exit_code: 0 }, { exit_code: 3 });
  expect(otherRanks(status, plainTranslator)).toEqual([
    'The other ranks were stopped: 1; had ended: 2; failed as well: 3.',
  ]);
});

test('where none is guilty there are no others', () => {
  const status = ended(collateral());
  const timedOut = { ...status, failure: { ...status.failure!, reason: 'timeout' as const, rank: null } };
  expect(otherRanks(timedOut, plainTranslator)).toEqual(['Stopped ranks: 0.']);
});

test('a rank outside its script is told as such', () => {
  const status = ended({ exit_code: 1 }, collateral([{ is_main: true, frames: [] }]));
  expect(otherRanks(status, plainTranslator)[1]).toBe('Rank 1 was starting or ending.');
});

test('of very different ranks the first are told', () => {
  const status = ended(
    { exit_code: 1 },
    ...Array.from({ length: 64 }, (_, index) => collateral(mainThread(index + 1))),
  );
  const lines = otherRanks(status, plainTranslator);
  expect(lines).toHaveLength(ACTIVITIES_NAMED + 2);
  expect(lines[lines.length - 1]).toBe('Ranks 7–64 were elsewhere.');
});

test('a file is named within the source, or within the installed packages', () => {
  const deep = '/var/tmp/workspaces/w1/j1.0.1/source/sub/source/a.py';
  expect(fileAndLine(frame(deep, 3, 'f'))).toBe('sub/source/a.py:3');
  expect(fileAndLine(frame(TORCH, 7, 'f'))).toBe('torch/distributed/distributed_c10d.py:7');
  expect([sourcePath(deep), sourcePath(TORCH), sourcePath('/tmp/x.py')]).toEqual(['sub/source/a.py', null, null]);
});
