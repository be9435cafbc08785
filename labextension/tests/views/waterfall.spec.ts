import { Waterfall } from '../../src/views/waterfall';
import { plainTranslator } from '../support/fake_source';
import { failed, outcome, running, shape, succeeded, task } from '../support/jobs';
import { jobStatus } from '../support/records';

const rows = (node: Element): string[] =>
  [...node.querySelectorAll('[role=row]')].map(row =>
    [...row.children]
      .map(cell => cell.textContent)
      .filter(Boolean)
      .join(' '),
  );
const title = (node: Element): string | null => node.querySelector('.jp-gpulayer-waterfall-title')!.textContent;

test('the steps of a rank, its time to the first step, and that it was warm', () => {
  const waterfall = new Waterfall(plainTranslator, () => 0);
  waterfall.update(succeeded());
  expect(title(waterfall.node)).toBe('Start-up of rank 0 · 92 ms to the first step · warm');
  expect(rows(waterfall.node)).toEqual([
    'queued 3.0 ms',
    'fetch 3.0 ms',
    'launch 6.0 ms',
    'start 9.0 ms',
    'imports 2.0 ms',
    'rendezvous 29 ms',
    'before the first step 40 ms',
    'steps 4.20 s',
    'after the last step 1.0 ms',
    'teardown 4.0 ms',
  ]);
});

test('the scale ends with the start-up: training does not shrink it', () => {
  const waterfall = new Waterfall(plainTranslator, () => 0);
  waterfall.update(succeeded());
  const spans = [...waterfall.node.querySelectorAll<HTMLElement>('.jp-gpulayer-span')];
  const last = spans[spans.length - 1]!;
  expect(parseFloat(last.style.left) + parseFloat(last.style.width)).toBeCloseTo(100);
  expect(waterfall.node.querySelectorAll('.jp-gpulayer-beyond')).toHaveLength(3);
});

test('another rank can be chosen, and the choice stays; of a failed job the guilty is first', () => {
  const waterfall = new Waterfall(plainTranslator, () => 0);
  waterfall.update(succeeded());
  const select = waterfall.node.querySelector('select')!;
  select.value = '1';
  select.dispatchEvent(new Event('change'));
  expect(title(waterfall.node)).toContain('rank 1 · 103 ms');
  waterfall.update(succeeded());
  expect(title(waterfall.node)).toContain('rank 1');
  const other = new Waterfall(plainTranslator, () => 0);
  other.update(failed());
  expect(title(other.node)).toContain('Start-up of rank 1');
});

test('why it was cold is said', () => {
  const ranks = [
    outcome(0, { launcher: 'direct', cold_reason: 'it sets LD_PRELOAD', marks: { entered: 1.6, ended: 2 } }),
  ];
  const waterfall = new Waterfall(plainTranslator, () => 0);
  waterfall.update(jobStatus({ spec: shape(1, 1), state: 'succeeded', ended_at: 1010, tasks: [task(0, { ranks })] }));
  expect(title(waterfall.node)).toBe('Start-up of rank 0 · 1.60 s to the first line of the script · direct');
  expect(waterfall.node.textContent).toContain('Not started warm: it sets LD_PRELOAD');
});

test('while it runs, the job has steps of its own', () => {
  const waterfall = new Waterfall(plainTranslator, () => 1005);
  waterfall.update(running());
  expect(title(waterfall.node)).toBe('Start-up');
  expect(rows(waterfall.node)).toEqual(['queued 3.0 ms', 'assigned 87 ms', 'running 4.91 s so far']);
});
