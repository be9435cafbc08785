import { JobList } from '../../src/sidebar/job_list';
import { JobsView } from '../../src/sidebar/jobs_view';
import type { JobSummary } from '../../src/protocol';
import { Stream } from '../../src/stream';
import { plainTranslator as trans } from '../../src/widget/plain_translator';
import { FakeServer, settle } from '../support/fake_server';
import { jobSummary } from '../support/records';

let server: FakeServer;
let stream: Stream;
let list: JobList;
let view: JobsView;
const opened = jest.fn();
const cancelled = jest.fn();
const ended: string[] = [];

beforeEach(async () => {
  jest.useFakeTimers({ doNotFake: ['queueMicrotask'], now: 1_100_000 });
  ended.length = 0;
  opened.mockClear();
  cancelled.mockClear();
  server = new FakeServer();
  stream = new Stream({ settings: server.settings });
  list = new JobList(stream, job => ended.push(job.job_id));
  view = new JobsView({
    list,
    connection: stream,
    trans,
    now: stream.now,
    actions: { open: opened, cancel: cancelled },
  });
  document.body.replaceChildren(view.node);
  list.follow(true);
  await settle();
  server.socket.open();
});

afterEach(() => {
  view.dispose();
  stream.dispose();
  jest.useRealTimers();
});

function job(number: number, values: Partial<JobSummary> = {}): JobSummary {
  const id = `j${String(number).padStart(12, '0')}`;
  return jobSummary({
    job_id: id,
    name: `job ${number}`,
    created_at: 1000 + number,
    started_at: 1001 + number,
    ...values,
  });
}

function say(jobs: JobSummary[], whole = true, next = 1): void {
  server.socket.say({ type: 'jobs', id: 1, jobs, next, whole });
}

const rows = (): HTMLElement[] => [...view.node.querySelectorAll('li')];
const names = (): (string | undefined)[] =>
  rows().map(row => row.querySelector('.jp-gpulayer-jobs-name')?.textContent ?? undefined);

it('says that there are none yet and how to start', () => {
  expect(view.node.textContent).toContain('Loading jobs…');
  say([]);
  expect(view.node.textContent).toContain('No jobs yet.');
  expect(view.node.textContent).toContain('%%gpulayer');
  expect(view.node.querySelector<HTMLElement>('ul')?.hidden).toBe(true);
});

it('lists jobs, the newest first, and takes in those that changed', () => {
  say([job(2), job(1)]);
  const second = rows()[1];
  say([job(3), job(1, { state: 'succeeded', ended_at: 1012 })], false, 2);
  expect(names()).toEqual(['job 3', 'job 2', 'job 1']);
  expect(rows()[2]).toBe(second);
  expect(second?.textContent).toContain('succeeded');
  expect(view.node.textContent).toContain('2 running');
});

it('forgets jobs that are gone when the server says which there are', () => {
  say([job(2), job(1)]);
  say([job(2)], true, 2);
  expect(names()).toEqual(['job 2']);
});

it('shows each state by its word, and what matters of it', () => {
  say([
    job(1, { state: 'queued', started_at: null, waiting_for: 'no worker yet' }),
    job(2, { progress: { done: 1, total: 4, text: 'epoch 1/4', time: 0 } }),
    job(3, { state: 'failed', ended_at: 1010, failure: 'rank 1: ValueError: shapes' }),
    job(4, { cancel_requested: true }),
  ]);
  const text = (number: number): string =>
    rows().find(row => row.textContent?.includes(`job ${number}`))?.textContent ?? '';
  expect(text(1)).toContain('queued');
  expect(text(1)).toContain('no worker yet');
  expect(text(1)).toContain('waits');
  expect(text(2)).toContain('2 × cpu · epoch 1/4');
  expect(view.node.querySelector('progress')?.value).toBe(0.25);
  expect(text(3)).toContain('rank 1: ValueError: shapes');
  expect(text(4)).toContain('stopping');
  const stops = rows().filter(row => !row.querySelector<HTMLElement>('.jp-gpulayer-jobs-stop')?.hidden);
  expect(stops.map(row => row.dataset['jobId']?.at(-1))).toEqual(['2', '1']);
});

it('jobs of one name are told apart by when they were submitted, and by their ids', () => {
  const local = (seconds: number): string => new Date(seconds * 1000).toTimeString().slice(0, 8);
  say([job(2, { name: 'cell-3' }), job(1, { name: 'cell-3', created_at: 1090 })]);
  const which = rows().map(row => row.querySelector('.jp-gpulayer-jobs-which')?.textContent);
  expect(which).toEqual([`${local(1090)} · ${job(1).job_id}`, `${local(1002)} · ${job(2).job_id}`]);
});

it('times go on while the sidebar is seen', () => {
  say([job(0)]);
  view.isVisible = true;
  const time = view.node.querySelector('.jp-gpulayer-jobs-time');
  expect(time?.textContent).toBe('1:39');
  jest.advanceTimersByTime(2_000);
  expect(time?.textContent).toBe('1:41');
  view.isVisible = false;
  jest.advanceTimersByTime(5_000);
  expect(time?.textContent).toBe('1:41');
});

it('is gone through by keys: one row takes part in Tab', () => {
  say([job(3), job(2), job(1, { state: 'succeeded', ended_at: 1010 })]);
  const press = (key: string): void => {
    document.activeElement?.dispatchEvent(new KeyboardEvent('keydown', { key, bubbles: true, cancelable: true }));
  };
  view.focus();
  expect(view.currentJob).toBe(job(3).job_id);
  press('ArrowDown');
  expect(view.currentJob).toBe(job(2).job_id);
  expect([...view.node.querySelectorAll('.jp-gpulayer-jobs-open')].map(node => (node as HTMLElement).tabIndex)).toEqual(
    [-1, 0, -1],
  );
  press('Delete');
  expect(cancelled).toHaveBeenCalledWith(job(2).job_id);
  press('End');
  press('ArrowDown');
  expect(view.currentJob).toBe(job(1).job_id);
  press('Delete');
  expect(cancelled).toHaveBeenCalledTimes(1);
  press('Home');
  (document.activeElement as HTMLElement).click();
  expect(opened).toHaveBeenCalledWith(job(3).job_id);
  // A change of the list leaves the focus where it is.
  say([job(4)], false, 2);
  expect(document.activeElement?.textContent).toContain('job 3');
});

it('focus that comes before the jobs goes to the first of them', () => {
  view.focus();
  expect(document.activeElement).toBe(view.node);
  say([job(1)]);
  expect(document.activeElement?.textContent).toContain('job 1');
});

it('says what is wrong with the connection, and keeps what was known', () => {
  say([job(1)]);
  server.socket.break();
  expect(view.node.textContent).toContain('Reconnecting…');
  expect(names()).toEqual(['job 1']);
});

it('tells which jobs have ended that were seen running', () => {
  say([job(2), job(1, { state: 'failed', ended_at: 5 })]);
  say([job(2, { state: 'succeeded', ended_at: 9 }), job(3, { state: 'failed', ended_at: 9 })], false, 2);
  expect(ended).toEqual([job(2).job_id]);
});

it('names are text', () => {
  say([job(1, { name: '<img src=x>', failure: '<b>', state: 'failed', ended_at: 3 })]);
  expect(view.node.querySelector('img, b')).toBeNull();
});

it('five hundred rows stay as they are when one changes', () => {
  const many = Array.from({ length: 500 }, (_none, index) => job(500 - index));
  say(many);
  const before = rows();
  const touched: Node[] = [];
  const observer = new MutationObserver(records => touched.push(...records.map(record => record.target)));
  observer.observe(view.node, { childList: true, subtree: true, characterData: true });
  say([job(250, { state: 'succeeded', ended_at: 1300 })], false, 2);
  touched.push(...observer.takeRecords().map(record => record.target));
  expect(rows()).toEqual(before);
  const own = before.find(row => row.dataset['jobId'] === job(250).job_id)!;
  const counts = view.node.querySelector('.jp-gpulayer-jobs-counts')!;
  expect(touched.every(node => own.contains(node) || counts.contains(node))).toBe(true);
});
