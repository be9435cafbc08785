import { JobView } from '../../src/views/job_view';
import { giveCanvas } from '../support/canvas';
import { FakeSource } from '../support/fake_source';
import { failed, points, queued, running, succeeded } from '../support/jobs';

giveCanvas();

const UNKNOWN = {
  code: 'unknown_job',
  status: 404,
  message: 'There is no such job.',
  asked: null,
  found: null,
  fix: null,
};

let source: FakeSource;
let view: JobView;

function draw(options: ConstructorParameters<typeof JobView>[1] = {}): void {
  source = new FakeSource();
  view = new JobView(source, { now: () => 1042, chartWidth: () => 300, ...options });
  document.body.replaceChildren(view.node);
}

beforeEach(() => {
  jest.useFakeTimers();
  draw();
});

afterEach(() => {
  view.dispose();
  jest.useRealTimers();
});

const tabs = (): (string | null)[] =>
  [...view.node.querySelectorAll('[role=tab]:not([hidden])')].map(one => one.textContent);
const said = (): string | null => view.node.querySelector('.jp-gpulayer-said')!.textContent;
const open = (label: string): void =>
  [...view.node.querySelectorAll<HTMLElement>('[role=tab]')].find(one => one.textContent === label)!.click();
const passTime = async (): Promise<void> => void (await jest.advanceTimersByTimeAsync(1000));

test('only tabs with something in them are offered', async () => {
  source.sendJob(queued());
  expect(tabs()).toEqual([]);
  source.sendJob(running());
  expect(tabs()).toEqual(['Output', 'Ranks', 'Start-up', 'Source']);
  source.sendMetrics(points(3, 2, () => ({ loss: 1 })));
  await passTime();
  expect(tabs()).toEqual(['Output', 'Metrics', 'Ranks', 'Start-up', 'Source']);
  open('Metrics');
  expect(view.node.querySelectorAll('.jp-gpulayer-charts canvas')).toHaveLength(1);
});

test('nothing is asked for before it is looked at', () => {
  const read = jest.spyOn(source, 'readSource');
  source.sendJob(running());
  expect(read).not.toHaveBeenCalled();
  open('Source');
  open('Output');
  open('Source');
  expect(read).toHaveBeenCalledTimes(1);
});

test('changes of state are said once, and what was there at first is not', () => {
  source.sendJob(running());
  expect(said()).toBe('');
  source.sendJob({ ...running(), revision: 4 });
  expect(said()).toBe('');
  source.sendJob({ ...running(), cancel_requested: true });
  expect(said()).toBe('Job train: stopping');
  source.sendJob(failed());
  expect(said()).toBe(
    'Job step: failed. Rank 1 on gpu-a (node 0, cuda:1) raised ValueError: shapes (64, 10) and (32, 10) differ',
  );
});

test('the place of a failure opens the source at that line', async () => {
  Element.prototype.scrollIntoView = jest.fn();
  source.files = async () => ({
    files: [{ path: 'main.py', size_bytes: 9, text: 'a\nb\n' }],
    script: 'main.py',
    more_files: 0,
  });
  source.sendJob(failed());
  [...view.node.querySelectorAll<HTMLElement>('.jp-gpulayer-failure button')][0]!.click();
  await passTime();
  expect(view.node.querySelector('[aria-selected=true]')!.textContent).toBe('Source (1 file)');
  expect(view.node.querySelector('.jp-gpulayer-marked-line')).not.toBeNull();
});

test('choosing a rank shows its output', () => {
  source.sendJob(failed());
  open('Ranks');
  view.node.querySelector<HTMLElement>('[data-row="3"]')!.click();
  expect(view.node.querySelector('[aria-selected=true]')!.textContent).toBe('Output');
  expect(document.activeElement).toBe(view.node.querySelector('.jp-gpulayer-logs-scroll'));
});

test('keys belong to the whole view, not to the notebook around it', () => {
  source.sendJob(running());
  view.node.querySelector<HTMLElement>('[role=tab]')!.focus();
  view.node.querySelector('[role=tab]')!.dispatchEvent(new KeyboardEvent('keydown', { key: 'x', bubbles: true }));
  expect(view.node.hasAttribute('data-lm-suppress-shortcuts')).toBe(true);
});

test('the source is read once, for the failure and for its tab', async () => {
  const lines = ['main.py:1-20 is cell 1 from line 1'];
  const files = [{ path: 'manifest.json', size_bytes: 9, text: JSON.stringify({ lines }) }];
  const read = jest.fn(async () => ({ files, script: null, more_files: 0 }));
  source.files = async () => Promise.reject(new Error('away'));
  const status = { ...failed(), spec: { ...failed().spec, cells: [8] } };
  source.sendJob(status);
  await passTime();
  source.files = read;
  source.sendJob({ ...status, revision: 10 });
  await passTime();
  expect(view.node.querySelector('.jp-gpulayer-failure-place')!.textContent).toContain('Cell [8], line 14');
  open('Source');
  await passTime();
  expect(read).toHaveBeenCalledTimes(1);
});

test('tabs that are open follow the job', () => {
  source.sendJob(running());
  open('Ranks');
  source.sendJob(failed());
  expect(view.node.querySelector('.jp-gpulayer-ranks')!.textContent).toContain('failed first: exit code 1');
  open('Start-up');
  expect(view.node.textContent).toContain('Start-up of rank 1');
  source.sendJob(succeeded());
  expect(view.node.textContent).toContain('92 ms to the first step');
});

test('a step that goes on is told with its time', async () => {
  let now = 1042;
  view.dispose();
  draw({ now: () => now });
  source.sendJob(running());
  open('Start-up');
  expect(view.node.textContent).toContain('41.91 s so far');
  now = 1043;
  await passTime();
  expect(view.node.textContent).toContain('42.91 s so far');
});

test('a job that is not known here leaves what the notebook kept', () => {
  const kept = document.createElement('pre');
  kept.textContent = 'job j1 train · succeeded';
  view.dispose();
  draw({ fallback: kept });
  source.fail(UNKNOWN);
  expect(view.node.querySelector('.jp-gpulayer-notice')!.textContent).toBe(
    'Job job-1 is not known here: it ran in another home, or is gone.job j1 train · succeeded',
  );
  expect(view.node.querySelector('.jp-gpulayer-body')).toHaveProperty('hidden', true);
});

test('a failure of the stream is said above what is known', () => {
  source.sendJob(running());
  source.fail({ ...UNKNOWN, code: 'server_unreachable', message: 'The server does not answer.', fix: 'Start it.' });
  expect(view.node.textContent).toContain('The server does not answer. Start it.');
  expect(view.node.textContent).toContain('running');
  source.sendJob(running());
  expect(view.node.querySelector('.jp-gpulayer-notice')).toHaveProperty('hidden', true);
});

test('after its end nothing is followed and nothing ticks', async () => {
  source.sendJob(running());
  view.dispose();
  expect(source.open).toBe(0);
  await passTime();
  expect(jest.getTimerCount()).toBe(0);
});
