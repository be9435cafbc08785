import type { StreamFrame } from '../src/protocol';
import { CommJobSource } from '../src/widget/comm_source';
import { plainTranslator } from '../src/widget/plain_translator';
import { drawJob } from '../src/widget';
import { settle } from './support/fake_server';
import { JOB_ID, jobStatus, logChunk, logPage } from './support/records';

/** The kernel's side of a widget's model. */
class FakeModel {
  readonly sent: { type: string; id: number; [name: string]: unknown }[] = [];
  listeners: ((message: unknown) => void)[] = [];

  get(): string {
    return JOB_ID;
  }

  send(content: unknown): void {
    this.sent.push(content as FakeModel['sent'][number]);
  }

  on(_event: string, listener: (message: unknown) => void): void {
    this.listeners.push(listener);
  }

  off(_event: string, listener: (message: unknown) => void): void {
    this.listeners = this.listeners.filter(one => one !== listener);
  }

  say(message: unknown): void {
    this.listeners.forEach(listener => listener(message));
  }

  frame(frame: StreamFrame, after: number | null = null): void {
    this.say({ type: 'frame', after, frame });
  }

  subscription(kind: string): number {
    return this.sent.find(one => one.type === 'subscribe' && (one['to'] as { kind: string }).kind === kind)!.id;
  }
}

let model: FakeModel;
let source: CommJobSource;

beforeEach(() => {
  model = new FakeModel();
  source = new CommJobSource(model);
});

afterEach(() => source.dispose());

function followLogs(rank: number | null = null): number[] {
  const got: number[] = [];
  source.logs({ rank }, page => got.push(...page.chunks.map(chunk => chunk.sequence)));
  return got;
}

it('what the kernel pushes is enough: it hears nothing while a cell runs', () => {
  const seen: number[] = [];
  source.job(status => seen.push(status.revision), jest.fn());
  const all = followLogs();
  const one = followLogs(1);
  model.frame({ type: 'job', id: -1, status: jobStatus({ revision: 5 }) });
  model.frame(
    { type: 'logs', id: -2, page: { chunks: [logChunk(1), logChunk(2, { rank: 1 })], next: 2, complete: false } },
    0,
  );
  model.frame({ type: 'logs', id: -2, page: { chunks: [logChunk(3, { rank: 1 })], next: 3, complete: false } }, 2);
  expect(seen).toEqual([5]);
  expect(all).toEqual([1, 2, 3]);
  expect(one).toEqual([2, 3]);
});

it('what came before a view was made is given to it', async () => {
  model.frame({ type: 'job', id: -1, status: jobStatus({ revision: 5 }) });
  model.frame({ type: 'logs', id: -2, page: logPage([1]) }, 0);
  model.frame({ type: 'logs', id: -2, page: logPage([2]) }, 1);
  const all = followLogs();
  const seen: number[] = [];
  source.job(status => seen.push(status.revision), jest.fn());
  await settle();
  expect(all).toEqual([1, 2]);
  expect(seen).toEqual([5]);
});

it('answers to what was asked and pushes bring each chunk once', async () => {
  const got = followLogs();
  await settle();
  const id = model.subscription('logs');
  expect(id).toBeGreaterThan(0);
  model.frame({ type: 'logs', id: -2, page: logPage([1, 2]) }, 0);
  model.frame({ type: 'logs', id, page: logPage([1, 2, 3]) }, 0);
  model.frame({ type: 'logs', id: -2, page: logPage([3, 4]) }, 2);
  expect(got).toEqual([1, 2, 3, 4]);
});

it('a page behind a gap waits for the answer', async () => {
  const got = followLogs();
  await settle();
  model.frame({ type: 'logs', id: -2, page: logPage([8, 9]) }, 7);
  expect(got).toEqual([]);
  model.frame({ type: 'logs', id: model.subscription('logs'), page: logPage([1, 8, 9]) }, 0);
  expect(got).toEqual([1, 8, 9]);
});

it('two views of one page never name the same ids', async () => {
  const other = new CommJobSource(model);
  followLogs();
  other.logs({ rank: null }, jest.fn());
  await settle();
  const ids = model.sent.map(one => one.id);
  expect(new Set(ids).size).toBe(2);
  other.dispose();
});

describe('requests', () => {
  it('are answered by their ids', async () => {
    const first = source.earlierLogs({ rank: 1, before: 9, limitBytes: 100 });
    const second = source.actions.joinCommand!();
    const [one, two] = model.sent;
    expect(one).toMatchObject({
      type: 'request',
      call: 'earlier_logs',
      arguments: { rank: 1, before: 9, limit_bytes: 100 },
    });
    model.say({ type: 'reply', id: two!.id, answer: { command: 'gpulayer worker start' } });
    model.say({ type: 'reply', id: one!.id, answer: logPage([8]) });
    expect(await second).toBe('gpulayer worker start');
    expect((await first).next).toBe(8);
  });

  it('fail as the kernel says', async () => {
    const done = source.actions.cancel(false);
    const error = { code: 'conflict', status: 409, message: 'It has ended.', asked: null, found: null, fix: null };
    model.say({ type: 'reply', id: model.sent[0]!.id, error });
    await expect(done).rejects.toMatchObject({ message: 'It has ended.', details: error });
  });

  it('fail when the kernel is gone, and later ones at once', async () => {
    const done = source.readSource();
    model.say({ type: 'lost' });
    await expect(done).rejects.toThrow('gone');
    await expect(source.actions.cancel(false)).rejects.toThrow('gone');
    expect(source.connection.state).toBe('offline');
  });
});

it('Cancel says what to do instead while the kernel hears nothing', () => {
  const onChange = jest.fn();
  source.connection.onChange(onChange);
  expect(source.actions.whyNoCancel).toBeUndefined();
  model.say({ type: 'blocked', value: true });
  expect(source.actions.whyNoCancel).toBe('Interrupt the cell to stop the job.');
  expect(onChange).toHaveBeenCalledTimes(1);
  model.say({ type: 'blocked', value: false });
  expect(source.actions.whyNoCancel).toBeUndefined();
});

it.each([null, 7, 'frame', {}, { type: 3 }, { type: 'module', source: 'x' }])(
  '%j is not taken for a message',
  message => {
    expect(() => model.say(message)).not.toThrow();
  },
);

it('texts have their placeholders filled as JupyterLab fills them', () => {
  expect(plainTranslator.__('%1 of %2 is 100%%', 3, 'x')).toBe('3 of x is 100%');
  expect(plainTranslator._n('%1 line', '%1 lines of %2', 2, 'y')).toBe('2 lines of y');
});

it('draws from what came before it, and ends', () => {
  const el = document.createElement('div');
  document.body.append(el);
  const backlog = [
    { type: 'frame', after: null, frame: { type: 'job', id: -1, status: jobStatus({ name: 'digits' }) } },
  ];
  const end = drawJob({ model, el, backlog });
  expect(el.textContent).toContain('digits');
  expect(document.head.querySelector('style')).not.toBeNull();
  end();
  expect(el.childElementCount).toBe(0);
  expect(model.listeners).toHaveLength(1); // that of the other source of this file
});

it('keeps of what was pushed only what no view has taken', () => {
  model.frame({ type: 'logs', id: -2, page: logPage([1]) }, 0);
  const first = followLogs();
  return settle().then(async () => {
    expect(first).toEqual([1]);
    model.frame({ type: 'logs', id: -2, page: logPage([2]) }, 1);
    expect(first).toEqual([1, 2]);
    // A second view begins with what the kernel is asked for, not with a copy of the whole log.
    const second = followLogs();
    await settle();
    expect(second).toEqual([]);
    expect(model.sent.filter(one => one.type === 'subscribe')).toHaveLength(2);
  });
});
