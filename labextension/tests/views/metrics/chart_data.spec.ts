import type { MetricValue } from '../../../src/protocol';
import { chartData } from '../../../src/views/metrics/chart_data';
import { MetricSeries } from '../../../src/views/metrics/metric_series';
import { plainTranslator } from '../../support/fake_source';

function series(rows: [rank: number, step: number, value: MetricValue][], name = 'loss', most = 1024): MetricSeries {
  const made = new MetricSeries(name, 'step', most);
  rows.forEach(([rank, step, value]) => made.add(rank, step, value));
  return made;
}

test('a line a rank: a gap where it is no number, nothing where it said nothing', () => {
  const data = chartData(
    [
      series([
        [0, 0, 1],
        [0, 1, 'nan'],
        [0, 3, 4],
        [1, 2, 5],
        [1, 3, 'inf'],
      ]),
    ],
    'ranks',
    plainTranslator,
  );
  expect(data.xs).toEqual([0, 1, 2, 3]);
  expect(data.lines.map(line => line.values)).toEqual([
    [1, null, undefined, 4],
    [undefined, undefined, 5, null],
  ]);
  expect(data.edges).toEqual([{ x: 3, isHigh: true, ink: 1 }]);
  expect(data.bands).toEqual([]);
  expect([1, 2, 3].map(data.textAt)).toEqual(['step 1: rank 0 NaN', 'step 2: rank 1 5', 'step 3: rank 0 4, rank 1 ∞']);
});

test('the mean with the spread over ranks', () => {
  const data = chartData(
    [
      series([
        [0, 0, 1],
        [1, 0, 3],
        [2, 0, 8],
        [0, 1, 'nan'],
        [0, 2, 2],
      ]),
    ],
    'spread',
    plainTranslator,
  );
  expect(data.lines.map(line => line.values)).toEqual([[4, null, 2]]);
  expect(data.bands).toEqual([{ ink: 0, low: [1, null, 2], high: [8, null, 2] }]);
});

test('one rank has no spread, but what was put together has', () => {
  expect(
    chartData(
      [
        series([
          [0, 0, 1],
          [0, 1, 2],
        ]),
      ],
      'spread',
      plainTranslator,
    ).bands,
  ).toEqual([]);
  const data = chartData(
    [
      series(
        [
          [0, 0, 1],
          [0, 1, 2],
          [0, 2, 6],
        ],
        'loss',
        2,
      ),
    ],
    'spread',
    plainTranslator,
  );
  expect(data.bands).toEqual([{ ink: 0, low: [1, 6], high: [2, 6] }]);
  expect(data.textAt(0)).toBe('steps 0–1, means: 1.5');
});

test('of many ranks the mean and the extremes are told', () => {
  const rows = Array.from({ length: 64 }, (_, rank): [number, number, MetricValue] => [
    rank,
    0,
    rank === 9 ? 'nan' : rank,
  ]);
  const data = chartData([series(rows)], 'spread', plainTranslator);
  expect(data.textAt(0)).toBe('step 0: mean 31.86, least 0 (rank 0), most 63 (rank 63), no number from 1');
});

test('metrics that belong together share a chart', () => {
  const data = chartData(
    [
      series([[0, 0, 1]], 'train/loss'),
      series(
        [
          [0, 0, 2],
          [0, 5, 3],
        ],
        'val/loss',
      ),
    ],
    'spread',
    plainTranslator,
    ['train', 'val'],
  );
  expect(data.xs).toEqual([0, 5]);
  expect(data.lines.map(line => [line.label, line.values])).toEqual([
    ['train', [1, undefined]],
    ['val', [2, 3]],
  ]);
  expect(data.textAt(0)).toBe('step 0: train 1 · val 2');
});
