import { MOST_SUBSCRIPTIONS } from '../../src/protocol';
import { Subscriptions } from '../../src/stream/subscriptions';
import { settle } from '../support/fake_server';
import { JOB_ID, jobStatus, logPage, metricPage } from '../support/records';
import { JOB, LOGS, tabOfEachTest } from '../support/tab';

const tab = tabOfEachTest();

describe('cursors', () => {
  it('go on behind what was reached, without the tail', async () => {
    tab.followLogs();
    tab.stream.follow({ kind: 'metrics', job_id: JOB_ID, after: 0 }, {});
    await tab.connected();
    tab.server.socket.say({ type: 'logs', id: 1, page: logPage([1, 2, 5]) });
    tab.server.socket.say({ type: 'metrics', id: 2, page: metricPage([4]) });
    tab.server.socket.break();
    jest.advanceTimersByTime(1_000);
    await tab.connected();
    expect(tab.server.socket.subscribed('logs')?.to).toMatchObject({ after: 5, tail_bytes: null });
    expect(tab.server.socket.subscribed('metrics')?.to).toMatchObject({ after: 4 });
  });

  it('drop what has come already', async () => {
    const got = tab.followLogs();
    await tab.connected();
    tab.server.socket.say({ type: 'logs', id: 1, page: logPage([1, 2, 5]) });
    tab.server.socket.say({ type: 'logs', id: 1, page: logPage([2, 5, 6]) });
    tab.server.socket.say({ type: 'logs', id: 1, page: logPage([1, 2]) });
    expect(got).toEqual([1, 2, 5, 6]);
  });

  it('move with a page that brings nothing', async () => {
    tab.followLogs();
    await tab.connected();
    tab.server.socket.say({ type: 'logs', id: 1, page: { chunks: [], next: 9, complete: false } });
    tab.server.socket.break();
    jest.advanceTimersByTime(1_000);
    await tab.connected();
    expect(tab.server.socket.subscribed('logs')?.to).toMatchObject({ after: 9 });
  });

  it('begin with the tail again where nothing had come', async () => {
    tab.followLogs();
    await tab.connected();
    tab.server.socket.break();
    jest.advanceTimersByTime(1_000);
    await tab.connected();
    expect(tab.server.socket.subscribed('logs')?.to).toEqual(LOGS);
  });

  it('end with a complete page: it is not asked for again', async () => {
    tab.followLogs();
    tab.stream.follow(JOB, {});
    await tab.connected();
    tab.server.socket.say({ type: 'logs', id: 1, page: logPage([1], true) });
    await settle();
    expect(tab.server.socket.sent.at(-1)).toEqual({ type: 'unsubscribe', id: 1 });
    tab.server.socket.break();
    jest.advanceTimersByTime(1_000);
    await tab.connected();
    expect(tab.server.socket.subscribed('logs')).toBeUndefined();
  });

  it('never lose or double a chunk, wherever connections break', async () => {
    // Each turn resends some of the last page, adds two chunks and breaks the link.
    const got = tab.followLogs();
    for (let turn = 0; turn < 20; turn += 1) {
      await tab.connected();
      const after = tab.server.socket.subscribed('logs')!.to as { after: number };
      expect(after.after).toBe(2 * turn);
      tab.server.socket.say({ type: 'logs', id: 1, page: logPage([2 * turn, 2 * turn + 1].filter(Boolean)) });
      tab.server.socket.say({ type: 'logs', id: 1, page: logPage([2 * turn + 1, 2 * turn + 2]) });
      jest.advanceTimersByTime(5_000);
      tab.server.socket.break();
      jest.advanceTimersByTime(1_000);
    }
    expect(got).toEqual(Array.from({ length: 40 }, (_none, index) => index + 1));
  });
});

it('jobs that have ended give way to those that run, where a tab follows too many', () => {
  const changes = jest.fn();
  const subscriptions = new Subscriptions(changes);
  for (let number = 0; number < MOST_SUBSCRIPTIONS; number += 1) {
    subscriptions.add(JOB, {});
  }
  subscriptions.add(LOGS, {});
  expect(subscriptions.wanted()).toHaveLength(MOST_SUBSCRIPTIONS);
  expect(subscriptions.wanted().some(({ to }) => to.kind === 'logs')).toBe(false);
  changes.mockClear();
  subscriptions.take({ type: 'job', id: 7, status: jobStatus({ state: 'succeeded', ended_at: 1002 }) });
  expect(changes).toHaveBeenCalledTimes(1);
  expect(subscriptions.wanted()).toHaveLength(MOST_SUBSCRIPTIONS);
  expect(subscriptions.wanted().map(({ id }) => id)).not.toContain(7);
  expect(subscriptions.wanted().some(({ to }) => to.kind === 'logs')).toBe(true);
});

it('a server that lets each socket in and cuts it at once is not stormed', async () => {
  tab.followLogs();
  await settle();
  const { sockets } = tab.server;
  for (let minute = 0; minute < 600; minute += 1) {
    if (tab.server.socket.readyState === 0) {
      tab.server.socket.open();
      tab.server.socket.break();
    }
    jest.advanceTimersByTime(100);
    await settle();
  }
  // Doubling from half a second to a quarter of a minute: a minute has room for some ten tries.
  expect(sockets.length).toBeLessThan(13);
  expect(sockets.length).toBeGreaterThan(4);
});
