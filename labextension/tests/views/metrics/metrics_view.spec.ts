import { MainChart } from '../../../src/views/metrics/main_chart';
import { groupOf, kindOf, labelOf } from '../../../src/views/metrics/metric_names';
import { MetricStore } from '../../../src/views/metrics/metric_store';
import { MetricsView } from '../../../src/views/metrics/metrics_view';
import { giveCanvas } from '../../support/canvas';
import { plainTranslator } from '../../support/fake_source';
import { points } from '../../support/jobs';
import { HandSchedule } from '../../support/schedule';

giveCanvas();

let schedule: HandSchedule;
let store: MetricStore;
let view: MetricsView;

beforeEach(() => {
  schedule = new HandSchedule();
  store = new MetricStore(schedule);
  view = new MetricsView(store, plainTranslator, () => 300);
  document.body.replaceChildren(view.node);
  view.setShown(true);
});

afterEach(() => view.dispose());

const titles = (): (string | null)[] =>
  [...view.node.querySelectorAll('.jp-gpulayer-chart-title')].map(one => one.textContent);
const plot = (): HTMLElement => view.node.querySelector('[role=slider]')!;
const button = (text: string): HTMLButtonElement =>
  [...view.node.querySelectorAll('button')].find(one => one.textContent === text)!;
const press = (key: string): boolean => plot().dispatchEvent(new KeyboardEvent('keydown', { key, bubbles: true }));

test('a chart a metric, under its group', () => {
  store.add(points(3, 2, () => ({ 'train/loss': 1, 'val/loss': 2, throughput: 3 })));
  schedule.run();
  expect(titles()).toEqual(['throughput', 'train/loss', 'val/loss']);
  expect([...view.node.querySelectorAll('[role=heading]')].map(one => one.textContent)).toEqual(['train', 'val']);
  expect(view.node.querySelectorAll('canvas')).toHaveLength(3);
});

test('nothing is drawn while the tab is not open', () => {
  view.setShown(false);
  store.add(points(3, 1, () => ({ loss: 1 })));
  schedule.run();
  expect(titles()).toEqual([]);
  view.setShown(true);
  expect(titles()).toEqual(['loss']);
});

test('arrow keys read the values of all ranks, aloud and in a line', () => {
  store.add(points(3, 2, (step, rank) => ({ loss: step + rank / 10 })));
  schedule.run();
  expect(plot().getAttribute('aria-label')).toBe('loss: arrow keys read the values');
  plot().focus();
  press('ArrowLeft');
  expect(plot().getAttribute('aria-valuetext')).toBe('step 2: rank 0 2, rank 1 2.1');
  press('ArrowLeft');
  expect(plot().getAttribute('aria-valuetext')).toBe('step 1: rank 0 1, rank 1 1.1');
  expect(plot().getAttribute('aria-valuenow')).toBe('1');
  press('Home');
  expect(view.node.querySelector('.jp-gpulayer-readout')!.textContent).toBe('step 0: rank 0 0, rank 1 0.1');
  press('Escape');
  expect(view.node.querySelector('.jp-gpulayer-readout')!.textContent).toContain('step 2');
});

test('new values are not read aloud to somebody who reads others', () => {
  store.add(points(3, 1, step => ({ loss: step })));
  schedule.run();
  plot().focus();
  press('Home');
  store.add(points(3, 1, step => ({ loss: step }), { from: 3 }));
  schedule.run();
  expect(plot().getAttribute('aria-valuetext')).toBe('step 0: 0');
  expect(plot().getAttribute('aria-valuemax')).toBe('5');
});

test('past eight ranks the mean and the spread are shown, and the lines when asked for', () => {
  store.add(points(3, 12, (step, rank) => ({ loss: step + rank })));
  schedule.run();
  expect(button('A line a rank').getAttribute('aria-pressed')).toBe('false');
  expect(view.node.querySelector('.jp-gpulayer-keys')!.textContent).toBe('band: least to most over ranks');
  button('A line a rank').click();
  expect(view.node.querySelector('.jp-gpulayer-keys')!.textContent).toBe('01234567and 4 more');
});

test('a log scale, also of what is never above zero', () => {
  store.add(points(3, 1, step => ({ loss: step, worse: -step })));
  schedule.run();
  const log = view.node.querySelector<HTMLInputElement>('input')!;
  log.checked = true;
  log.dispatchEvent(new Event('change'));
  expect(view.node.querySelectorAll('canvas')).toHaveLength(2);
});

test('as a table: the newest value of each rank, in words where it is no number', () => {
  store.add(points(3, 2, (step, rank) => ({ loss: rank ? ('inf' as const) : step / 8 })));
  schedule.run();
  button('As table').click();
  const cells = [...view.node.querySelectorAll('tr')].map(row => [...row.children].map(cell => cell.textContent));
  expect(cells).toEqual([
    ['Metric', 'Step or time', 'Rank 0', 'Rank 1'],
    ['loss', '2', '0.25', '∞'],
  ]);
});

test('of many ranks the table has the mean and the extremes', () => {
  store.add(points(1, 12, (_step, rank) => ({ loss: rank })));
  schedule.run();
  button('As table').click();
  const cells = [...view.node.querySelectorAll('tbody tr')].map(row => [...row.children].map(cell => cell.textContent));
  expect(cells).toEqual([['loss', '0', '5.5', '0 (rank 0)', '11 (rank 11)', '12']]);
});

test('what was thinned out or lost is said', () => {
  store.add({ ...points(1, 1, () => ({ loss: 1 })), received: 2_000_000, kept: 120_000, lost: 1 });
  schedule.run();
  expect(view.node.querySelector('.jp-gpulayer-note')!.textContent).toBe(
    'thinned out: 120\u2009000 of 2\u2009000\u2009000 points were kept · 1 point was lost on its way',
  );
});

test('a second attempt begins anew', () => {
  store.add(points(3, 1, () => ({ loss: 1, old: 2 })));
  schedule.run();
  store.add(points(3, 1, () => ({ loss: 1 }), { attempt: 2 }));
  schedule.run();
  expect(titles()).toEqual(['loss']);
  expect(view.node.querySelector('.jp-gpulayer-note')!.textContent).toBe('of attempt 2');
});

test('the small chart shows the losses together, and says how many more there are', () => {
  const onMore = jest.fn();
  const main = new MainChart(store, plainTranslator, () => 280, onMore);
  store.add(points(3, 2, () => ({ lr: 1, 'train/loss': 1, 'val/loss': 2 })));
  schedule.run();
  expect(main.node.hidden).toBe(false);
  expect(main.node.querySelector('figcaption')!.textContent).toBe('losstrainvalband: least to most over ranks');
  main.node.querySelector('button')!.click();
  expect(main.node.querySelector('button')!.textContent).toBe('1 more in Metrics');
  expect(onMore).toHaveBeenCalledTimes(1);
  const dashes = [...main.node.querySelectorAll('figcaption line')].map(line => line.getAttribute('stroke-dasharray'));
  expect(dashes).toEqual([null, '6 3']);
  main.dispose();
});

test('the small chart is not drawn while it is out of sight', () => {
  const main = new MainChart(store, plainTranslator, () => 300);
  main.setInSight(false);
  store.add(points(4, 2, () => ({ loss: 1 })));
  schedule.run();
  expect(main.node.querySelector('figure')).toBeNull();
  main.setInSight(true);
  expect(main.node.querySelector('figure')).not.toBeNull();
  main.dispose();
});

test.each([
  ['train/loss', 'train', 'loss', 'train'],
  ['val_loss', '', 'loss', 'val'],
  ['loss', '', 'loss', 'loss'],
  ['opt/group/lr', 'opt/group', 'lr', 'opt/group'],
])('%p is of group %p and kind %p', (name, group, kind, label) => {
  expect([groupOf(name), kindOf(name), labelOf(name)]).toEqual([group, kind, label]);
});
