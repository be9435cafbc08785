import { MetricStore, MOST_BUCKETS, MOST_METRICS } from '../../../src/views/metrics/metric_store';
import { points } from '../../support/jobs';
import { HandSchedule } from '../../support/schedule';

let schedule: HandSchedule;
let store: MetricStore;

beforeEach(() => {
  schedule = new HandSchedule();
  store = new MetricStore(schedule);
});

test('points become series, one a metric and rank', () => {
  store.add(points(3, 2, (step, rank) => ({ loss: step + rank, lr: 0.1 })));
  expect(store.isIdle).toBe(false);
  schedule.run();
  expect([...store.series.keys()]).toEqual(['loss', 'lr']);
  expect(store.series.get('loss')!.ranks.get(1)!.mean(2)).toBe(3);
});

test('many points are worked through in slices, and listeners hear of it seldom', () => {
  const heard = jest.fn();
  store.onChange(heard);
  for (let from = 0; from < 50_000; from += 500) {
    store.add(points(500, 1, step => ({ loss: step }), { from }));
  }
  schedule.run();
  expect(schedule.slices).toBeGreaterThan(5);
  expect(heard.mock.calls.length).toBeLessThanOrEqual(schedule.slices);
  expect(store.series.get('loss')!.ranks.get(0)!.length).toBeLessThanOrEqual(MOST_BUCKETS);
});

test('two million points take bounded room', () => {
  for (let from = 0; from < 500_000; from += 10_000) {
    store.add(points(10_000, 4, step => ({ loss: 1 / (step + 1) }), { from }));
    schedule.run();
  }
  const loss = store.series.get('loss')!;
  expect(loss.buckets).toBeLessThanOrEqual(4 * MOST_BUCKETS);
  expect(
    [...loss.ranks.values()].map(rank => rank.count.subarray(0, rank.length).reduce((sum, one) => sum + one, 0)),
  ).toEqual(Array(4).fill(500_000));
});

test('many metrics of many ranks share the room', () => {
  const names = Object.fromEntries(Array.from({ length: 100 }, (_, index) => [`m${index}`, 1]));
  for (let from = 0; from < 200; from += 20) {
    store.add(points(20, 64, () => names, { from }));
    schedule.run();
  }
  const all = [...store.series.values()].reduce((sum, series) => sum + series.buckets, 0);
  expect(all).toBeLessThanOrEqual(100 * 64 * 128);
});

test('of a second attempt nothing of the first is left, and late points of the first change nothing', () => {
  store.add(points(5, 1, () => ({ old: 1 })));
  store.add(points(2, 1, () => ({ loss: 2 }), { attempt: 2 }));
  store.add(points(5, 1, () => ({ old: 1 })));
  schedule.run();
  expect([...store.series.keys()]).toEqual(['loss']);
  expect(store.attempt).toBe(2);
});

test('without a step time is the axis', () => {
  store.add(points(5, 1, () => ({ loss: 1 }), { isTimed: true }));
  store.add(points(5, 1, () => ({ loss: 1 })));
  schedule.run();
  expect([...store.series.values()].map(series => [series.name, series.axis])).toEqual([
    ['loss', 'time'],
    ['loss', 'step'],
  ]);
});

test('names beyond the most are counted, not drawn', () => {
  const names = Object.fromEntries(Array.from({ length: MOST_METRICS + 7 }, (_, index) => [`m${index}`, 1]));
  store.add(points(1, 1, () => names));
  schedule.run();
  expect([store.series.size, store.leftOut.size]).toEqual([MOST_METRICS, 7]);
});

test('after its end nothing is worked on or told', () => {
  const heard = jest.fn();
  store.onChange(heard);
  store.add(points(5, 1, () => ({ loss: 1 })));
  store.dispose();
  schedule.run();
  expect(heard).not.toHaveBeenCalled();
  expect(store.series.size).toBe(0);
});
