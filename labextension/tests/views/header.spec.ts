import type { JobStatus } from '../../src/protocol';
import { Header } from '../../src/views/header';
import { FakeSource } from '../support/fake_source';
import { cancelled, failed, outcome, queued, running, succeeded, task, waitingForWorkers } from '../support/jobs';

let source: FakeSource;
let header: Header;
let now: number;

beforeEach(() => {
  jest.useFakeTimers();
  now = 1042.1;
  source = new FakeSource();
  header = new Header(source, () => now);
  document.body.append(header.node);
});

afterEach(() => {
  header.dispose();
  header.node.remove();
  jest.useRealTimers();
});

const facts = (): string | null => header.node.querySelector('.jp-gpulayer-facts')!.textContent;
const button = (text: string): HTMLButtonElement | undefined =>
  [...header.node.querySelectorAll('button')].find(one => one.textContent === text && !one.hidden);
const settle = (): Promise<void> => Promise.resolve().then(() => undefined);

test('one line says what, where, how long and how it started', () => {
  header.update(running());
  expect(facts()).toBe('running 0:42 · 2 nodes × 2 cuda on gpu-a, gpu-b · started in 0.09 s');
  header.update(failed());
  expect(facts()).toBe('failed after 12 s · 2 nodes × 2 cuda on gpu-a, gpu-b · started in 0.02 s, warm');
  header.update(succeeded());
  expect(facts()).toBe('succeeded after 4.3 s · 1 node × 2 cuda on gpu-a · started in 0.02 s, warm');
  header.update(cancelled());
  expect(facts()).toBe('cancelled after 1:02 · 1 node × 2 cuda on gpu-a · started in 0.1 s');
  header.update({ ...cancelled(), started_at: null, tasks: [] });
  expect(facts()).toBe('cancelled · 1 node × 2 cuda');
});

test('a start that waited for the import of PyTorch is not called warm', () => {
  const marks = { fetched: 0.01, launched: 13.9, entered: 14 };
  header.update({ ...succeeded(), tasks: [task(0, { ranks: [outcome(0, { marks }), outcome(1, { marks })] })] });
  expect(facts()).toBe('succeeded after 4.3 s · 1 node × 2 cuda on gpu-a · started in 14 s, PyTorch imported first');
});

test('a start that takes its time says what it is at', () => {
  const words = (): string | null => header.node.querySelector('.jp-gpulayer-waits-words')!.textContent;
  const starting: JobStatus = {
    ...running(),
    state: 'queued',
    accelerator: 'cpu',
    started_at: null,
    waiting_for: 'starting on gpu-a, gpu-b',
    waiting: { reason: 'starting', local_workers: 0, cpu_devices: null },
  };
  now = 1000.5;
  header.update(starting);
  expect(words()).toBe('Starting on gpu-a, gpu-b');
  now += 3;
  jest.advanceTimersByTime(1000);
  expect(words()).toBe(
    'Starting on gpu-a, gpu-b. The first job on a worker waits until PyTorch is imported; those after it start at once.',
  );
  header.update({ ...starting, accelerator: 'cuda' });
  expect(words()).toBe('Starting on gpu-a, gpu-b. torchrun imports PyTorch before it starts the ranks.');
  header.update({ ...starting, spec: { ...starting.spec, requirements: 'requirements.txt' } });
  expect(words()).toContain('The first job with these requirements waits until they are installed');
});

test('a job that is stopping says how long its ranks have left, and what is quicker', () => {
  const words = (): string | null => header.node.querySelector('.jp-gpulayer-waits-words')!.textContent;
  const sooner = ' “Kill at once”, or a second interrupt of its cell, does not wait.';
  header.update(running());
  header.update({ ...running(), cancel_requested: true });
  expect(words()).toBe(`Its ranks were interrupted, and are killed in at most 10 s.${sooner}`);
  now += 4;
  jest.advanceTimersByTime(1000);
  expect(words()).toBe(`Its ranks were interrupted, and are killed in at most 6 s.${sooner}`);
  now += 7;
  jest.advanceTimersByTime(1000);
  expect(words()).toBe('Its ranks are killed.');
  header.update(cancelled());
  expect(header.node.querySelector('.jp-gpulayer-waits')).toHaveProperty('hidden', true);
});

test('where the stop was not seen, the whole grace is told', () => {
  header.update({ ...running(), cancel_requested: true });
  expect(header.node.textContent).toContain('are killed within 10 s.');
});

test('a click on the id copies it', async () => {
  const writeText = jest.fn(async () => undefined);
  Object.defineProperty(navigator, 'clipboard', { value: { writeText }, configurable: true });
  header.update(running());
  button('job-1')!.click();
  await settle();
  expect(writeText).toHaveBeenCalledWith('job-1');
  expect(button('Copied')).toBeDefined();
  jest.advanceTimersByTime(2000);
  expect(button('job-1')!.getAttribute('aria-label')).toBe('Copy the job’s id job-1');
});

test('each state has a shape of its own', () => {
  const shapes = [
    queued(),
    running(),
    { ...running(), cancel_requested: true },
    succeeded(),
    failed(),
    cancelled(),
  ].map(status => {
    header.update(status);
    const mark = header.node.querySelector('.jp-gpulayer-mark')!;
    expect(mark.getAttribute('aria-hidden')).toBe('true');
    return new XMLSerializer().serializeToString(mark).replace(/class="[^"]*"/g, '');
  });
  expect(new Set(shapes).size).toBe(shapes.length);
});

test('the clock goes on by itself until the job has ended', () => {
  header.update(running());
  now += 3;
  jest.advanceTimersByTime(1000);
  expect(facts()).toContain('running 0:45');
  header.update(cancelled());
  now += 3;
  jest.advanceTimersByTime(1000);
  expect(facts()).toContain('after 1:02');
});

test('a server whose clock is ahead does not turn time round', () => {
  now = 900;
  header.update(running());
  expect(facts()).toContain('running 0:00');
  now += 5;
  jest.advanceTimersByTime(1000);
  expect(facts()).toContain('running 0:05');
});

test('progress is a bar with its text', () => {
  header.update(running());
  const bar = header.node.querySelector('[role=progressbar]')!;
  expect(bar.getAttribute('aria-valuenow')).toBe('65');
  expect(header.node.querySelector('.jp-gpulayer-progress')!.textContent).toBe(
    'epoch 2/3 · loss 0.131 · 812 of 1\u2009250',
  );
  header.update({ ...running(), progress: { done: 7, total: null, text: null, time: 1 } });
  expect(bar).toHaveProperty('hidden', true);
  expect(header.node.querySelector('.jp-gpulayer-progress')!.textContent).toBe('7');
});

test('the first click stops, the second kills, and the second of a double click does nothing', async () => {
  header.update(running());
  button('Stop')!.dispatchEvent(new MouseEvent('click', { detail: 1 }));
  expect(source.cancelled).toEqual([false]);
  expect(button('Stopping…')!.getAttribute('aria-disabled')).toBe('true');
  await settle();
  header.update({ ...running(), cancel_requested: true });
  expect(facts()).toMatch(/^stopping 0:42/);
  button('Kill at once')!.dispatchEvent(new MouseEvent('click', { detail: 2 }));
  expect(source.cancelled).toEqual([false]);
  button('Kill at once')!.dispatchEvent(new MouseEvent('click', { detail: 1 }));
  expect(source.cancelled).toEqual([false, true]);
  header.update(cancelled());
  expect(header.node.querySelector('.jp-gpulayer-stop')).toHaveProperty('hidden', true);
});

test('the focus stays with what one stops by keyboard, and at its line when that is gone', async () => {
  document.body.append(header.node);
  header.update(running());
  const stop = button('Stop')!;
  stop.focus();
  stop.click();
  stop.click();
  expect(source.cancelled).toEqual([false]);
  expect(document.activeElement).toBe(stop);
  header.update(cancelled());
  expect(document.activeElement).toBe(header.node);
  header.node.blur();
  expect(header.node.hasAttribute('tabindex')).toBe(false);
});

test('a stop that is refused says why and can be tried again', async () => {
  source.actions = { cancel: async () => Promise.reject({ message: 'Not yours.', fix: 'Ask ada.' }) };
  header.update(running());
  button('Stop')!.click();
  await settle();
  await settle();
  expect(header.node.querySelector('[role=alert]')!.textContent).toBe('Not yours. Ask ada.');
  expect(button('Stop')!.getAttribute('aria-disabled')).toBe('false');
});

test('where nothing can be stopped the reason stands in the place of the button, as long as it holds', () => {
  source.actions = { cancel: async () => undefined, whyNoCancel: 'Interrupt the cell to stop the job.' };
  header.update(running());
  expect(button('Stop')).toBeUndefined();
  expect(header.node.textContent).toContain('Interrupt the cell to stop the job.');
  source.actions = { cancel: async () => undefined };
  jest.advanceTimersByTime(1000);
  expect(button('Stop')).toBeDefined();
});

test('a job that waits says for what, and offers what helps', async () => {
  const started: number[] = [];
  source.actions = {
    cancel: async () => undefined,
    startLocalWorkers: async count => void started.push(count),
    joinCommand: async () => 'gpulayer worker start --server http://x/',
  };
  header.update(waitingForWorkers());
  expect(facts()).toBe('queued 0:42 · 2 nodes × 1 device');
  expect(header.node.querySelector('.jp-gpulayer-waits-words')!.textContent).toBe(
    'No worker yet: start one with gpulayer worker start',
  );
  expect(header.node.querySelector('.jp-gpulayer-waits-words code')!.textContent).toBe('gpulayer worker start');
  button('Start 2 local workers')!.click();
  expect(started).toEqual([2]);
  expect(button('Starting 2 workers…')!.getAttribute('aria-disabled')).toBe('true');
  button('Add a worker…')!.click();
  await settle();
  await settle();
  expect(header.node.textContent).toContain('Run this on the machine that is to be a worker:');
  expect(header.node.querySelector('.jp-gpulayer-command')!.textContent).toBe(
    'gpulayer worker start --server http://x/',
  );
  expect(document.activeElement?.getAttribute('aria-label')).toBe('Copy the command');
  header.update(running());
  expect(header.node.querySelector('.jp-gpulayer-waits')).toHaveProperty('hidden', true);
});

test('a join command stays while what the job waits for changes', async () => {
  source.actions = { cancel: async () => undefined, joinCommand: async () => 'gpulayer worker start' };
  header.update(queued());
  button('Add a worker…')!.click();
  await settle();
  await settle();
  header.update({ ...queued(), waiting_for: 'needs 8 × cuda; free: 2 on gpu-a' });
  expect(header.node.querySelector('.jp-gpulayer-waits-words')!.textContent).toContain('free: 2');
  expect(header.node.querySelector('.jp-gpulayer-command')!.textContent).toBe('gpulayer worker start');
});

test('without the actions nothing is offered', () => {
  header.update(queued());
  expect(header.node.textContent).toContain('Needs 8 × cuda; free: 3 on gpu-a, 5 on gpu-b');
  expect([...header.node.querySelectorAll('button:not([hidden])')].map(one => one.textContent)).toEqual([
    'job-1',
    'Stop',
  ]);
});

test('a lost connection is said, and the rest stays', () => {
  header.update(running());
  source.connection.become('reconnecting');
  expect(header.node.textContent).toContain('reconnecting…');
  expect(facts()).toContain('running');
  source.connection.become('connected');
  expect(header.node.querySelector('.jp-gpulayer-connection')).toHaveProperty('hidden', true);
});
