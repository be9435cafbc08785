import { MetricSeries, MINUS_INF, NAN, PLUS_INF } from '../../../src/views/metrics/metric_series';

test('each step is a bucket while there is room', () => {
  const series = new MetricSeries('loss', 'step', 8);
  [3, 1, 2, 2].forEach((step, index) => series.add(0, step, index));
  const rank = series.ranks.get(0)!;
  expect([...rank.index.subarray(0, rank.length)]).toEqual([1, 2, 3]);
  expect([0, 1, 2].map(at => rank.mean(at))).toEqual([1, 2.5, 0]);
});

test('past its room neighbours are put together, with least, mean and most, and for all ranks alike', () => {
  const series = new MetricSeries('loss', 'step', 16);
  for (let step = 0; step < 1000; step += 1) {
    series.add(0, step, step);
  }
  series.add(1, 999, 5);
  const [first, second] = [series.ranks.get(0)!, series.ranks.get(1)!];
  expect(first.length).toBeLessThanOrEqual(16);
  expect(series.width).toBe(64);
  expect([first.low[0], first.mean(0), first.high[0]]).toEqual([0, 31.5, 63]);
  expect(first.count.subarray(0, first.length).reduce((sum, one) => sum + one, 0)).toBe(1000);
  expect(second.index[0]).toBe(first.index[first.length - 1]);
});

test('what is no number leaves a gap and is marked', () => {
  const series = new MetricSeries('loss', 'step', 8);
  series.add(0, 0, 'nan');
  series.add(0, 1, 'inf');
  series.add(0, 2, '-inf');
  const rank = series.ranks.get(0)!;
  expect([0, 1, 2].map(at => rank.mean(at))).toEqual([null, null, null]);
  expect([...rank.flags.subarray(0, 3)]).toEqual([NAN, PLUS_INF, MINUS_INF]);
  series.limit(1);
  expect(rank.flags[0]).toBe(NAN | PLUS_INF | MINUS_INF);
});

test('points that come in any order end in the same buckets', () => {
  const [forward, backward] = [new MetricSeries('a', 'step', 32), new MetricSeries('a', 'step', 32)];
  for (let step = -100; step < 400; step += 1) {
    forward.add(0, step, step * 2);
    backward.add(0, 299 - step, (299 - step) * 2);
  }
  const [one, other] = [forward.ranks.get(0)!, backward.ranks.get(0)!];
  expect(forward.width).toBe(backward.width);
  expect([...one.index.subarray(0, one.length)]).toEqual([...other.index.subarray(0, other.length)]);
  expect([...one.sum.subarray(0, one.length)]).toEqual([...other.sum.subarray(0, other.length)]);
});
