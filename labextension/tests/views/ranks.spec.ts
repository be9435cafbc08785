import { oddOnes, rankMarks, rankRows } from '../../src/views/rank_rows';
import { Ranks } from '../../src/views/ranks';
import { plainTranslator } from '../support/fake_source';
import { cancelled, failed, many, outcome, queued, running, shape, task } from '../support/jobs';
import { jobStatus } from '../support/records';

const table = (node: Element): (string | null)[][] =>
  [...node.querySelectorAll('tr')].map(row => [...row.children].map(cell => cell.textContent));

test('few ranks are a table, the guilty first, each with its end in words', () => {
  const ranks = new Ranks(plainTranslator, () => undefined);
  ranks.update(failed());
  const stopped = 'stopped as another failed: SIGTERM (signal 15)';
  expect(table(ranks.node)).toEqual([
    ['Rank', 'Node', 'Worker', 'Device', 'State', 'Started', 'Note'],
    [
      '1',
      '0',
      'gpu-a',
      'cuda:1',
      'failed first: exit code 1',
      'warm',
      'ValueError: shapes (64, 10) and (32, 10) differ',
    ],
    ['0', '0', 'gpu-a', 'cuda:0', stopped, 'warm', ''],
    ['2', '1', 'gpu-b', 'cuda:0', stopped, 'warm', ''],
    ['3', '1', 'gpu-b', 'cuda:1', stopped, 'warm', ''],
  ]);
});

test('while it runs, ranks are known from its shape', () => {
  const ranks = new Ranks(plainTranslator, () => undefined);
  ranks.update(running());
  expect(table(ranks.node)[4]).toEqual(['3', '1', 'gpu-b', 'cuda:1', 'running']);
  expect(rankRows(queued(), plainTranslator).map(row => row.state)).toEqual(Array(8).fill('queued'));
  expect(rankRows({ ...cancelled(), tasks: [] }, plainTranslator).map(row => row.state)).toEqual([
    'never started',
    'never started',
  ]);
});

test.each([
  [{ returned: true, exit_code: null, signal: 6 }, 'returned, then SIGABRT (signal 6)', 'succeeded'],
  [{ returned: false, exit_code: null, signal: 40 }, 'signal 40 (signal 40)', 'failed'],
  [{ returned: false, exit_code: null, signal: null }, 'end not seen', 'failed'],
  [{ exit_code: 0 }, 'exit code 0', 'succeeded'],
])('a rank that ended with %p', (values, state, phase) => {
  const status = jobStatus({
    spec: shape(1, 1),
    state: 'succeeded',
    tasks: [task(0, { ranks: [outcome(0, values)] })],
  });
  expect(rankRows(status, plainTranslator)[0]).toMatchObject({ state, phase });
});

test('a command is one rank with all its devices, and how it began', () => {
  const spec = { ...jobStatus().spec, kind: 'command' as const, argv: ['python'], devices: 2 };
  const ranks = [outcome(0, { launcher: null, start: 'cold', cold_reason: 'it reads standard input' })];
  const status = jobStatus({ spec, tasks: [task(0, { ranks })] });
  expect(rankRows(status, plainTranslator)).toMatchObject([
    { rank: 0, device: 'cuda:0, cuda:1', launcher: 'command, cold', note: 'not started warm: it reads standard input' },
  ]);
});

test('a worker that was lost is said', () => {
  const status = jobStatus({ spec: shape(1, 1), tasks: [task(0, { state: 'lost' })] });
  expect(rankRows(status, plainTranslator)[0]).toMatchObject({ state: 'lost with its worker', phase: 'failed' });
});

test('64 ranks are a grid of marks, with a table of those that stand out', () => {
  const chosen: number[] = [];
  const ranks = new Ranks(plainTranslator, rank => chosen.push(rank));
  document.body.replaceChildren(ranks.node);
  ranks.update(many());
  const cells = [...ranks.node.querySelectorAll<HTMLElement>('.jp-gpulayer-cell')];
  expect(cells).toHaveLength(64);
  expect(cells[37]!.getAttribute('aria-label')).toBe('Rank 37 on gpu-e: failed first: exit code 1');
  expect(ranks.node.querySelector('p')!.textContent).toBe(
    '64 ranks · 8 workers · 61 stopped as another failed: SIGTERM (signal 15) · 2 exit code 1: 5, 50 · 1 failed first: exit code 1: 37',
  );
  expect(
    table(ranks.node)
      .slice(1)
      .map(row => row[0]),
  ).toEqual(['37', '5', '50']);
  cells[0]!.focus();
  cells[0]!.dispatchEvent(new KeyboardEvent('keydown', { key: 'ArrowRight', bubbles: true }));
  expect(document.activeElement).toBe(cells[1]);
  expect(cells.filter(cell => cell.tabIndex === 0)).toEqual([cells[1]]);
  (document.activeElement as HTMLElement).click();
  expect(chosen).toEqual([1]);
  [...ranks.node.querySelectorAll('button')].find(one => one.textContent === 'All 64 as a table')!.click();
  expect(table(ranks.node)).toHaveLength(65);
});

test('the focus outlives an update', () => {
  const ranks = new Ranks(plainTranslator, () => undefined);
  document.body.replaceChildren(ranks.node);
  ranks.update(running());
  ranks.node.querySelector<HTMLElement>('[data-row="2"]')!.focus();
  ranks.update(failed());
  expect((document.activeElement as HTMLElement).dataset['row']).toBe('2');
});

test('marks for the choice of logs', () => {
  expect(rankMarks(failed())[1]).toEqual({ rank: 1, phase: 'failed', first: true });
  expect(oddOnes(rankRows(running(), plainTranslator))).toEqual([]);
});
