import { Stream } from '../../src/stream';
import { FakeServer, settle } from '../support/fake_server';
import { JOB_ID, logPage } from '../support/records';

const LOGS = { kind: 'logs', job_id: JOB_ID, rank: null, after: 0, tail_bytes: 1000 } as const;
const JOB = { kind: 'job', job_id: JOB_ID, after_revision: null, shows: false } as const;

let server: FakeServer;
let stream: Stream;

beforeEach(() => {
  jest.useFakeTimers({ doNotFake: ['queueMicrotask'] });
  server = new FakeServer();
  stream = new Stream({ settings: server.settings, random: () => 0.5 });
});

afterEach(() => {
  stream.dispose();
  jest.useRealTimers();
});

/** Follows all ranks' output; gives the sequences that came. */
function followLogs(): number[] {
  const got: number[] = [];
  stream.follow(LOGS, { onLogs: page => got.push(...page.chunks.map(chunk => chunk.sequence)) });
  return got;
}

describe('where no socket comes through', () => {
  async function refused(): Promise<void> {
    await settle();
    server.socket.break();
    await settle();
  }

  it('one long poll carries all, and cursors move', async () => {
    const got = followLogs();
    stream.follow(JOB, {});
    await refused();
    expect(server.call.method).toBe('POST');
    expect(server.call.url).toBe('http://localhost:8888/user/x/gpulayer/v1/stream');
    expect(server.call.body).toEqual({ wait: 0, subscriptions: { 1: LOGS, 2: JOB } });
    server.call.answer(200, { frames: [{ type: 'logs', id: 1, page: logPage([1, 2]) }] });
    await settle();
    expect(stream.state).toBe('connected');
    expect(got).toEqual([1, 2]);
    jest.advanceTimersByTime(0);
    expect(server.call.body).toMatchObject({ wait: 25, subscriptions: { 1: { after: 2, tail_bytes: null }, 2: JOB } });
    expect(server.calls).toHaveLength(2);
  });

  it('a poll that is held is given up for one that asks for more', async () => {
    followLogs();
    await refused();
    server.call.answer(200, { frames: [] });
    await settle();
    jest.advanceTimersByTime(0);
    const held = server.call;
    stream.follow(JOB, {});
    await settle();
    expect(server.call).not.toBe(held);
    expect(server.call.body).toMatchObject({ subscriptions: { 2: JOB } });
    held.answer(200, { frames: [{ type: 'logs', id: 1, page: logPage([1]) }] });
    await settle();
    expect(stream.state).toBe('connected');
  });

  it('a server that answers at once without anything is not asked in a loop', async () => {
    followLogs();
    await refused();
    server.call.answer(200, { frames: [] });
    await settle();
    jest.advanceTimersByTime(0);
    for (let turn = 0; turn < 5; turn += 1) {
      server.call.answer(200, { frames: [] });
      await settle();
      jest.advanceTimersByTime(100);
    }
    expect(server.calls.length).toBeLessThan(5);
  });

  it('the socket is tried again, and takes over without a gap', async () => {
    const got = followLogs();
    await refused();
    server.call.answer(200, { frames: [{ type: 'logs', id: 1, page: logPage([1]) }] });
    await settle();
    jest.advanceTimersByTime(10_000);
    expect(server.sockets).toHaveLength(2);
    const held = server.call;
    server.socket.open();
    expect(server.socket.subscribed('logs')?.to).toMatchObject({ after: 1 });
    held.answer(200, { frames: [{ type: 'logs', id: 1, page: logPage([2]) }] });
    server.socket.say({ type: 'logs', id: 1, page: logPage([2, 3]) });
    await settle();
    expect(got).toEqual([1, 2, 3]);
    const calls = server.calls.length;
    jest.advanceTimersByTime(60_000);
    expect(server.calls).toHaveLength(calls);
  });

  it('and a socket that is refused again leaves the polls alone', async () => {
    followLogs();
    await refused();
    server.call.answer(200, { frames: [] });
    await settle();
    jest.advanceTimersByTime(10_000);
    server.socket.break();
    expect(stream.state).toBe('connected');
    jest.advanceTimersByTime(20_000);
    expect(server.sockets).toHaveLength(3);
  });

  it.each([
    [404, 'missing'],
    [403, 'not_allowed'],
    [500, null],
  ])('an answer %i says what is wrong', async (status, problem) => {
    followLogs();
    await refused();
    server.call.answer(status, '<html>');
    await settle();
    expect(stream.problem).toBe(problem);
    expect(stream.state).toBe(problem === null ? 'reconnecting' : 'offline');
  });
});
