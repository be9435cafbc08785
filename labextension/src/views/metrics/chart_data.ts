/** From metrics to what a chart draws: columns over one axis, a line a rank or the mean with the spread over ranks. Pure. */
import type { Translator } from '../source';
import { clock, count, value } from '../units';
import { MINUS_INF, NAN, PLUS_INF, type Axis, type MetricSeries, type RankSeries } from './metric_series';

export type Mode = 'ranks' | 'spread';

/** `undefined`: nothing was said there; null: something that is no number, where the line breaks. */
export type Column = (number | null | undefined)[];

export interface ChartLine {
  label: string;
  ink: number;
  values: Column;
}

export interface ChartBand {
  ink: number;
  low: Column;
  high: Column;
}

/** An infinite value: it lies at the edge. */
export interface EdgeMark {
  x: number;
  isHigh: boolean;
  ink: number;
}

export interface ChartData {
  axis: Axis;
  xs: number[];
  lines: ChartLine[];
  bands: ChartBand[];
  /** Else the bands are those of steps that were put together. */
  isOverRanks: boolean;
  edges: EdgeMark[];
  /** What stands at one of `xs`, in words. */
  textAt(at: number): string;
}

/** Values of more ranks than these are told by their mean and extremes. */
const RANKS_TOLD = 16;

/**
 * What a chart of these metrics draws; several only of one axis.
 *
 * @param labels - of the metrics, where there are several.
 */
export function chartData(
  metrics: readonly MetricSeries[],
  mode: Mode,
  trans: Translator,
  labels: readonly string[] = [],
): ChartData {
  const xs = allXs(metrics);
  const data: ChartData = {
    axis: metrics[0]?.axis ?? 'step',
    xs,
    lines: [],
    bands: [],
    isOverRanks: metrics.some(metric => metric.ranks.size > 1),
    edges: [],
    textAt: at => textAt(metrics, labels, xs[at] ?? 0, trans),
  };
  metrics.forEach((metric, index) => {
    const ranks = [...metric.ranks].sort(([one], [other]) => one - other);
    ranks.forEach(([rank, series]) => {
      const ink = mode === 'ranks' ? rank : index;
      addEdges(data.edges, metric, series, ink);
      if (mode === 'ranks' || ranks.length === 1) {
        data.lines.push({
          label: mode === 'ranks' ? String(rank) : (labels[index] ?? metric.name),
          ink,
          values: meansOf(metric, series, xs),
        });
      }
    });
    if (mode === 'spread') {
      const spread = spreadOf(metric, xs);
      if (ranks.length > 1) {
        data.lines.push({ label: labels[index] ?? metric.name, ink: index, values: spread.mean });
      }
      if (ranks.length > 1 || metric.width > FINEST[metric.axis]) {
        data.bands.push({ ink: index, low: spread.low, high: spread.high });
      }
    }
  });
  return data;
}

const FINEST: Record<Axis, number> = { step: 1, time: 1 / 64 };

/** Where any of the metrics has a bucket, ascending. */
function allXs(metrics: readonly MetricSeries[]): number[] {
  let found: number[] = [];
  for (const metric of metrics) {
    for (const series of metric.ranks.values()) {
      found = merged(found, series, metric);
    }
  }
  return found;
}

function merged(known: number[], series: RankSeries, metric: MetricSeries): number[] {
  const all: number[] = [];
  let at = 0;
  for (let bucket = 0; bucket < series.length; bucket += 1) {
    const x = metric.at(series.index[bucket] ?? 0);
    for (; at < known.length && (known[at] ?? 0) < x; at += 1) {
      all.push(known[at] ?? 0);
    }
    if (known[at] === x) {
      at += 1;
    }
    all.push(x);
  }
  return at < known.length ? all.concat(known.slice(at)) : all;
}

function meansOf(metric: MetricSeries, series: RankSeries, xs: readonly number[]): Column {
  let bucket = 0;
  return xs.map(x => {
    if (bucket >= series.length || metric.at(series.index[bucket] ?? 0) !== x) {
      return undefined;
    }
    bucket += 1;
    return series.mean(bucket - 1);
  });
}

/** Over all ranks that have a bucket there: the mean of their means, the least and the most of all values. */
function spreadOf(metric: MetricSeries, xs: readonly number[]): { mean: Column; low: Column; high: Column } {
  const all = [...metric.ranks.values()];
  const next = all.map(() => 0);
  const spread: { mean: Column; low: Column; high: Column } = { mean: [], low: [], high: [] };
  for (const x of xs) {
    let [sum, ranks, low, high, isSaid] = [0, 0, Infinity, -Infinity, false];
    all.forEach((series, index) => {
      const bucket = next[index] ?? 0;
      if (bucket < series.length && metric.at(series.index[bucket] ?? 0) === x) {
        next[index] = bucket + 1;
        isSaid = true;
        const mean = series.mean(bucket);
        if (mean !== null) {
          sum += mean;
          ranks += 1;
          low = Math.min(low, series.low[bucket] ?? 0);
          high = Math.max(high, series.high[bucket] ?? 0);
        }
      }
    });
    const none = isSaid ? null : undefined;
    spread.mean.push(ranks ? sum / ranks : none);
    spread.low.push(ranks ? low : none);
    spread.high.push(ranks ? high : none);
  }
  return spread;
}

function addEdges(edges: EdgeMark[], metric: MetricSeries, series: RankSeries, ink: number): void {
  for (let bucket = 0; bucket < series.length; bucket += 1) {
    const flags = series.flags[bucket] ?? 0;
    for (const [flag, isHigh] of [
      [PLUS_INF, true],
      [MINUS_INF, false],
    ] as const) {
      if (flags & flag) {
        edges.push({ x: metric.at(series.index[bucket] ?? 0), isHigh, ink });
      }
    }
  }
}

/** `step 812: rank 0 0.131, rank 1 0.132`. */
function textAt(metrics: readonly MetricSeries[], labels: readonly string[], x: number, trans: Translator): string {
  const parts = metrics.flatMap((metric, index) => {
    const told = toldAt(metric, x, trans);
    return told === null ? [] : [labels[index] ? `${labels[index]} ${told}` : told];
  });
  const finest = metrics[0];
  return `${finest ? placeWords(finest, x, trans) : ''}: ${parts.join(' · ') || '–'}`;
}

/** `step 812`, `steps 1 024–1 031`, `0:42`. */
function placeWords(metric: MetricSeries, x: number, trans: Translator): string {
  if (metric.axis === 'time') {
    return trans.__('at %1', clock(x));
  }
  return metric.width > 1
    ? trans.__('steps %1–%2, means', count(x), count(x + metric.width - 1))
    : trans.__('step %1', count(x));
}

function toldAt(metric: MetricSeries, x: number, trans: Translator): string | null {
  const index = Math.round(x / metric.width);
  const said: [number, number | null, number][] = [];
  for (const [rank, series] of [...metric.ranks].sort(([one], [other]) => one - other)) {
    const at = series.find(index);
    if (at < series.length && series.index[at] === index) {
      said.push([rank, series.mean(at), series.flags[at] ?? 0]);
    }
  }
  if (!said.length) {
    return null;
  }
  if (metric.ranks.size === 1) {
    return said.map(([, mean, flags]) => saidText(mean, flags)).join('');
  }
  if (metric.ranks.size <= RANKS_TOLD) {
    return said.map(([rank, mean, flags]) => trans.__('rank %1 %2', rank, saidText(mean, flags))).join(', ');
  }
  const numbers = said.filter((one): one is [number, number, number] => one[1] !== null);
  if (!numbers.length) {
    return trans.__('no numbers from %1 ranks', said.length);
  }
  const mean = numbers.reduce((sum, [, one]) => sum + one, 0) / numbers.length;
  const [least, most] = extremes(numbers);
  const odd = said.length - numbers.length;
  const text = trans.__(
    'mean %1, least %2 (rank %3), most %4 (rank %5)',
    value(mean),
    value(least[1]),
    least[0],
    value(most[1]),
    most[0],
  );
  return odd ? `${text}, ${trans.__('no number from %1', odd)}` : text;
}

/** The pairs of rank and value with the least and the most. */
export function extremes<T extends readonly [number, number, ...unknown[]]>(numbers: readonly T[]): [T, T] {
  let [least, most] = [numbers[0] as T, numbers[0] as T];
  for (const one of numbers) {
    least = one[1] < least[1] ? one : least;
    most = one[1] > most[1] ? one : most;
  }
  return [least, most];
}

function saidText(mean: number | null, flags: number): string {
  const marks = [flags & NAN ? 'NaN' : '', flags & PLUS_INF ? '∞' : '', flags & MINUS_INF ? '−∞' : ''].filter(Boolean);
  return [mean === null ? '' : value(mean), ...marks].filter(Boolean).join(', ');
}
