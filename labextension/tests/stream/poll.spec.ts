import { settle } from '../support/fake_server';
import { logPage } from '../support/records';
import { JOB, LOGS, tabOfEachTest } from '../support/tab';

const tab = tabOfEachTest();

describe('where no socket comes through', () => {
  async function refused(): Promise<void> {
    await settle();
    tab.server.socket.break();
    await settle();
  }

  it('one long poll carries all, and cursors move', async () => {
    const got = tab.followLogs();
    tab.stream.follow(JOB, {});
    await refused();
    expect(tab.server.call.method).toBe('POST');
    expect(tab.server.call.url).toBe('http://localhost:8888/user/x/gpulayer/v1/stream');
    expect(tab.server.call.body).toEqual({ wait: 0, subscriptions: { 1: LOGS, 2: JOB } });
    tab.server.call.answer(200, { frames: [{ type: 'logs', id: 1, page: logPage([1, 2]) }] });
    await settle();
    expect(tab.stream.state).toBe('connected');
    expect(got).toEqual([1, 2]);
    jest.advanceTimersByTime(0);
    expect(tab.server.call.body).toMatchObject({
      wait: 25,
      subscriptions: { 1: { after: 2, tail_bytes: null }, 2: JOB },
    });
    expect(tab.server.calls).toHaveLength(2);
  });

  it('a poll that is held is given up for one that asks for more', async () => {
    tab.followLogs();
    await refused();
    tab.server.call.answer(200, { frames: [] });
    await settle();
    jest.advanceTimersByTime(0);
    const held = tab.server.call;
    tab.stream.follow(JOB, {});
    await settle();
    expect(tab.server.call).not.toBe(held);
    expect(tab.server.call.body).toMatchObject({ subscriptions: { 2: JOB } });
    held.answer(200, { frames: [{ type: 'logs', id: 1, page: logPage([1]) }] });
    await settle();
    expect(tab.stream.state).toBe('connected');
  });

  it('a server that answers at once without anything is not asked in a loop', async () => {
    tab.followLogs();
    await refused();
    tab.server.call.answer(200, { frames: [] });
    await settle();
    jest.advanceTimersByTime(0);
    for (let turn = 0; turn < 5; turn += 1) {
      tab.server.call.answer(200, { frames: [] });
      await settle();
      jest.advanceTimersByTime(100);
    }
    expect(tab.server.calls.length).toBeLessThan(5);
  });

  it('the socket is tried again, and takes over without a gap', async () => {
    const got = tab.followLogs();
    await refused();
    tab.server.call.answer(200, { frames: [{ type: 'logs', id: 1, page: logPage([1]) }] });
    await settle();
    jest.advanceTimersByTime(10_000);
    expect(tab.server.sockets).toHaveLength(2);
    const held = tab.server.call;
    tab.server.socket.open();
    expect(tab.server.socket.subscribed('logs')?.to).toMatchObject({ after: 1 });
    held.answer(200, { frames: [{ type: 'logs', id: 1, page: logPage([2]) }] });
    tab.server.socket.say({ type: 'logs', id: 1, page: logPage([2, 3]) });
    await settle();
    expect(got).toEqual([1, 2, 3]);
    const calls = tab.server.calls.length;
    jest.advanceTimersByTime(60_000);
    expect(tab.server.calls).toHaveLength(calls);
  });

  it('and a socket that is refused again leaves the polls alone', async () => {
    tab.followLogs();
    await refused();
    tab.server.call.answer(200, { frames: [] });
    await settle();
    jest.advanceTimersByTime(10_000);
    tab.server.socket.break();
    expect(tab.stream.state).toBe('connected');
    jest.advanceTimersByTime(20_000);
    expect(tab.server.sockets).toHaveLength(3);
  });

  it.each([
    [404, 'missing'],
    [403, 'not_allowed'],
    [500, null],
  ])('an answer %i says what is wrong', async (status, problem) => {
    tab.followLogs();
    await refused();
    tab.server.call.answer(status, '<html>');
    await settle();
    expect(tab.stream.problem).toBe(problem);
    expect(tab.stream.state).toBe(problem === null ? 'reconnecting' : 'offline');
  });
});
