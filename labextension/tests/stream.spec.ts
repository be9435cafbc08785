import type { JobsFrame, LogPage, StreamError } from '../src/protocol';
import { settle } from './support/fake_server';
import { jobStatus, logPage } from './support/records';
import { JOB, LOGS, tabOfEachTest } from './support/tab';

const tab = tabOfEachTest();

describe('the socket', () => {
  it('is made by the settings of the services, below their base URL', async () => {
    tab.followLogs();
    await settle();
    expect(tab.server.socket.url).toBe('ws://localhost:8888/user/x/gpulayer/v1/stream');
  });

  it('carries the token where Jupyter’s own sockets do', async () => {
    tab.stream.dispose();
    tab.begin({ token: 'a/b', appendToken: true });
    tab.followLogs();
    await settle();
    expect(tab.server.socket.url).toBe('ws://localhost:8888/user/x/gpulayer/v1/stream?token=a%2Fb');
  });

  it('is not made before somebody follows something', async () => {
    await settle();
    expect(tab.server.sockets).toHaveLength(0);
  });

  it('is one for all that a tab follows', async () => {
    tab.followLogs();
    tab.stream.follow(JOB, {});
    await tab.connected();
    tab.stream.follow({ kind: 'jobs' }, {});
    await settle();
    expect(tab.server.sockets).toHaveLength(1);
    expect(tab.server.socket.sent.map(one => one.id)).toEqual([1, 2, 3]);
  });

  it('says nothing before the server has said hello', async () => {
    tab.followLogs();
    await settle();
    tab.server.socket.readyState = 1;
    expect(tab.server.socket.sent).toEqual([]);
  });

  it('says what is no longer followed, and closes when nothing is', async () => {
    const subscription = tab.stream.follow(LOGS, {});
    await tab.connected();
    subscription.dispose();
    await settle();
    expect(tab.server.socket.sent.at(-1)).toEqual({ type: 'unsubscribe', id: 1 });
    jest.advanceTimersByTime(6_000);
    expect(tab.server.socket.readyState).toBe(3);
  });

  it('asks for at most as many as a tab may follow, and for the next once one has ended', async () => {
    const all = Array.from({ length: 205 }, () => tab.stream.follow(LOGS, {}));
    await tab.connected();
    expect(tab.server.socket.sent).toHaveLength(200);
    all[0]!.dispose();
    await settle();
    expect(tab.server.socket.sent.slice(200)).toEqual([
      { type: 'unsubscribe', id: 1 },
      { type: 'subscribe', id: 201, to: LOGS },
    ]);
  });
});

describe('a restart of the server', () => {
  it('goes on in logs and reads records and lists anew', async () => {
    tab.followLogs();
    const revisions: number[] = [];
    tab.stream.follow(JOB, { onJob: status => revisions.push(status.revision) });
    const frames: JobsFrame[] = [];
    tab.stream.follow({ kind: 'jobs', limit: 10, after: null }, { onJobs: frame => frames.push(frame) });
    await tab.connected('first');
    tab.server.socket.say({ type: 'logs', id: 1, page: logPage([7]) });
    tab.server.socket.say({ type: 'job', id: 2, status: jobStatus({ revision: 8 }) });
    tab.server.socket.say({ type: 'jobs', id: 3, jobs: [], next: 50, whole: true });
    tab.server.socket.break();
    expect(tab.stream.state).toBe('reconnecting');
    jest.advanceTimersByTime(1_000);
    await tab.connected('second');
    expect(tab.stream.state).toBe('connected');
    expect(tab.server.socket.subscribed('logs')?.to).toMatchObject({ after: 7 });
    expect(tab.server.socket.subscribed('job')?.to).toMatchObject({ after_revision: null });
    expect(tab.server.socket.subscribed('jobs')?.to).toMatchObject({ after: null });
    tab.server.socket.say({ type: 'job', id: 2, status: jobStatus({ revision: 2 }) });
    tab.server.socket.say({ type: 'jobs', id: 3, jobs: [], next: 3, whole: true });
    expect(revisions).toEqual([8, 2]);
    expect(frames).toHaveLength(2);
  });

  it('keeps records where only the link broke', async () => {
    tab.stream.follow(JOB, {});
    await tab.connected('first');
    tab.server.socket.say({ type: 'job', id: 1, status: jobStatus({ revision: 8 }) });
    tab.server.socket.break();
    jest.advanceTimersByTime(1_000);
    await tab.connected('first');
    expect(tab.server.socket.subscribed('job')?.to).toMatchObject({ after_revision: 8 });
  });

  it('is refused where the server speaks a version that is too far away', async () => {
    const errors: StreamError[] = [];
    tab.stream.follow(JOB, { onFailed: error => errors.push(error) });
    await settle();
    tab.server.socket.open('other', { protocol: 3 });
    expect(errors[0]?.code).toBe('protocol');
    expect(tab.stream.problem).toBe('protocol');
    jest.advanceTimersByTime(600_000);
    expect(tab.server.sockets).toHaveLength(1);
  });
});

describe('what may fail', () => {
  it('ends one subscription, with the reason', async () => {
    const errors: StreamError[] = [];
    tab.stream.follow(JOB, { onFailed: error => errors.push(error) });
    const got = tab.followLogs();
    await tab.connected();
    const error = { code: 'unknown_job', status: 404, message: 'There is none.', asked: null, found: null, fix: null };
    tab.server.socket.say({ type: 'failed', id: 1, error });
    tab.server.socket.say({ type: 'logs', id: 2, page: logPage([1]) });
    expect(errors).toEqual([error]);
    expect(got).toEqual([1]);
  });

  it('is asked again after a while where the server only could not at the moment', async () => {
    const onFailed = jest.fn();
    tab.stream.follow(JOB, { onFailed });
    await tab.connected();
    const error = { code: 'internal', status: 503, message: 'Stopping.', asked: null, found: null, fix: null };
    tab.server.socket.say({ type: 'failed', id: 1, error });
    await settle();
    jest.advanceTimersByTime(4_000);
    await settle();
    expect(onFailed).not.toHaveBeenCalled();
    expect(tab.server.socket.sent.filter(one => one.type === 'subscribe')).toHaveLength(2);
  });

  it('is no reason to stop: frames of nobody, and of no JSON', async () => {
    const got = tab.followLogs();
    await tab.connected();
    tab.server.socket.say({ type: 'logs', id: 99, page: logPage([1]) });
    expect(got).toEqual([]);
    tab.server.socket.onmessage?.({ data: '<html>' });
    expect(tab.stream.state).toBe('reconnecting');
  });
});

describe('reconnecting', () => {
  it('waits longer each time, tries on, and says that it is offline', async () => {
    tab.followLogs();
    await tab.connected();
    const states: string[] = [];
    tab.stream.onChange(() => states.push(tab.stream.state));
    tab.server.socket.break();
    const tries: number[] = [];
    for (let at = 0; at < 120_000; at += 250) {
      const before = tab.server.sockets.length;
      jest.advanceTimersByTime(250);
      if (tab.server.sockets.length > before) {
        tries.push(at);
        tab.server.socket.break();
        await settle();
        tab.server.call.fail();
        await settle();
      }
    }
    expect(states).toEqual(['reconnecting', 'offline']);
    const gaps = tries.slice(1).map((at, index) => at - tries[index]!);
    expect(gaps[0]).toBeLessThan(1_000);
    expect(gaps.at(-1)).toBeGreaterThan(10_000);
    expect(tries.length).toBeLessThan(20);
    await tab.connected();
    expect(states.at(-1)).toBe('offline');
  });

  it('is at once when the network is back', async () => {
    tab.followLogs();
    await tab.connected();
    tab.server.socket.break();
    window.dispatchEvent(new Event('online'));
    expect(tab.server.sockets).toHaveLength(2);
  });
});

it('a socket that opens and never says hello is given up', async () => {
  tab.followLogs();
  await settle();
  tab.server.socket.readyState = 1;
  jest.advanceTimersByTime(10_000);
  await settle();
  expect(tab.server.call.url).toContain('/v1/stream');
});

it('time is the server’s, whatever this browser’s clock says', async () => {
  tab.followLogs();
  await settle();
  tab.server.socket.open('first', { time: Date.now() / 1000 + 3600 });
  jest.advanceTimersByTime(5_000);
  expect(tab.stream.now() - Date.now() / 1000).toBeCloseTo(3600, 1);
});

describe('a tab that nobody sees', () => {
  function page(visibility: DocumentVisibilityState): Document {
    return Object.assign(new EventTarget(), { visibilityState: visibility }) as unknown as Document;
  }

  it('asks for no logs after a while, and has them all when it is seen again', async () => {
    tab.stream.dispose();
    const seen = page('visible');
    tab.begin({}, seen);
    const got = tab.followLogs();
    tab.stream.follow(JOB, {});
    await tab.connected();
    tab.server.socket.say({ type: 'logs', id: 1, page: logPage([1]) });
    Object.assign(seen, { visibilityState: 'hidden' });
    seen.dispatchEvent(new Event('visibilitychange'));
    jest.advanceTimersByTime(31_000);
    await settle();
    expect(tab.server.socket.sent.at(-1)).toEqual({ type: 'unsubscribe', id: 1 });
    Object.assign(seen, { visibilityState: 'visible' });
    seen.dispatchEvent(new Event('visibilitychange'));
    await settle();
    expect(tab.server.socket.sent.at(-1)).toMatchObject({ type: 'subscribe', id: 1, to: { after: 1 } });
    tab.server.socket.say({ type: 'logs', id: 1, page: logPage([2]) });
    expect(got).toEqual([1, 2]);
  });
});

it('a listener may follow more, and stop following, while it is told', async () => {
  const pages: LogPage[] = [];
  const first = tab.stream.follow(LOGS, {
    onLogs: page => {
      pages.push(page);
      first.dispose();
      tab.stream.follow({ ...LOGS, rank: 1 }, {});
    },
  });
  await tab.connected();
  tab.server.socket.say({ type: 'logs', id: 1, page: logPage([1]) });
  tab.server.socket.say({ type: 'logs', id: 1, page: logPage([2]) });
  await settle();
  expect(pages).toHaveLength(1);
  expect(tab.server.socket.subscribed('logs')?.to).toMatchObject({ rank: 1 });
});
