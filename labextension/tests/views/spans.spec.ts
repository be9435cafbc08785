import { spansOf, type Span } from '../../src/views/spans';
import { outcome, succeeded, task } from '../support/jobs';
import { jobStatus } from '../support/records';

const written = (spans: Span[]): string[] =>
  spans.map(
    span =>
      `${span.rank ?? 'job'} ${span.step} ${Math.round(span.start * 1000)}–${Math.round(span.end * 1000)}${span.soFar ? ' so far' : ''}`,
  );

test('spans of a job and of its rank adjoin each other', () => {
  const status = succeeded();
  status.tasks[0]!.ranks.splice(1);
  expect(written(spansOf(status))).toEqual([
    'job queued 0–3',
    'job assigned 3–20',
    'job running 20–4297',
    'job finish 4297–4300',
    '0 fetch 3–6',
    '0 launch 6–12',
    '0 start 12–21',
    '0 imports 21–23',
    '0 rendezvous 23–52',
    '0 before the first step 52–92',
    '0 steps 92–4292',
    '0 after the last step 4292–4293',
    '0 teardown 4293–4297',
  ]);
});

test('what goes on is drawn to the moment of asking', () => {
  const queued = jobStatus({ state: 'queued', started_at: null });
  expect(written(spansOf(queued, 1004))).toEqual(['job queued 0–4000 so far']);
  const running = jobStatus({ tasks: [task(0, { placed_at: 1000.5 })] });
  expect(written(spansOf(running, 1010))).toEqual([
    'job queued 0–500',
    'job assigned 500–1000',
    'job running 1000–10000 so far',
  ]);
});

test('marks that are missing are passed over by name, and a command is a process', () => {
  const marks = { imported: 0.5, ended: 2 };
  const command = { launched: 0.1, ended: 2 };
  const status = jobStatus({
    state: 'succeeded',
    ended_at: 1010,
    tasks: [task(0, { placed_at: 1001, ranks: [outcome(0, { marks }), outcome(1, { marks: command })] })],
  });
  expect(written(spansOf(status).filter(span => span.rank !== null))).toEqual([
    '0 fetch + launch + start + imports 1000–1500',
    '0 script 1500–3000',
    '1 fetch + launch 1000–1100',
    '1 process 1100–3000',
  ]);
});

test('the environment of a job that brings requirements is a step of its own', () => {
  const marks = { fetched: 0.1, equipped: 40, launched: 40.1, ended: 41 };
  const status = jobStatus({
    state: 'succeeded',
    ended_at: 1100,
    tasks: [task(0, { placed_at: 1000, ranks: [outcome(0, { marks })] })],
  });
  expect(written(spansOf(status).filter(span => span.rank !== null))).toEqual([
    '0 fetch 0–100',
    '0 environment 100–40000',
    '0 launch 40000–40100',
    '0 process 40100–41000',
  ]);
});

test('clocks that disagree turn no span round, and of a second attempt the first has no times', () => {
  const status = jobStatus({
    state: 'failed',
    attempt: 2,
    ended_at: 1002,
    tasks: [task(0, { attempt: 2, placed_at: 1001, ranks: [outcome(0, { marks: { entered: 5, ended: 4 } })] })],
  });
  const spans = spansOf(status);
  expect(spans[0]!.step).toBe('earlier attempts, queued');
  expect(spans.every(span => span.end >= span.start && span.end <= 2)).toBe(true);
});
