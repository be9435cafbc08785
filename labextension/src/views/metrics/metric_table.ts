/** The newest value of each metric, rank by rank: the charts for who does not see them. */
import { element } from '../elements';
import type { Translator } from '../source';
import { clock, count, value } from '../units';
import { extremes } from './chart_data';
import type { MetricSeries, RankSeries } from './metric_series';

const MOST_COLUMNS = 8;

export function metricTable(all: readonly MetricSeries[], trans: Translator): HTMLElement {
  const ranks = [...new Set(all.flatMap(metric => [...metric.ranks.keys()]))].sort((one, other) => one - other);
  const isWide = ranks.length > MOST_COLUMNS;
  const heads = isWide
    ? [trans.__('Mean'), trans.__('Least'), trans.__('Most'), trans.__('Ranks')]
    : ranks.map(rank => trans.__('Rank %1', rank));
  const rows = all.map(metric => {
    const newest = Math.max(...[...metric.ranks.values()].map(series => series.lastX));
    const cells = isWide ? wideCells(metric, trans) : ranks.map(rank => lastText(metric.ranks.get(rank)));
    return element(
      'tr',
      {},
      element('th', { scope: 'row' }, metric.name),
      element('td', {}, metric.axis === 'time' ? clock(newest) : count(newest)),
      ...cells.map(text => element('td', { class: 'jp-gpulayer-number' }, text)),
    );
  });
  return element(
    'table',
    { class: 'jp-gpulayer-table' },
    element('caption', {}, trans.__('The newest values')),
    element(
      'thead',
      {},
      element(
        'tr',
        {},
        ...[trans.__('Metric'), trans.__('Step or time'), ...heads].map(text => element('th', { scope: 'col' }, text)),
      ),
    ),
    element('tbody', {}, ...rows),
  );
}

function wideCells(metric: MetricSeries, trans: Translator): string[] {
  const numbers = [...metric.ranks]
    .map(([rank, series]): [number, number] => [rank, Number(typeof series.last === 'number' ? series.last : NaN)])
    .filter(([, last]) => Number.isFinite(last));
  if (!numbers.length) {
    return ['–', '–', '–', count(metric.ranks.size)];
  }
  const [least, most] = extremes(numbers);
  const mean = numbers.reduce((sum, [, last]) => sum + last, 0) / numbers.length;
  return [
    value(mean),
    trans.__('%1 (rank %2)', value(least[1]), least[0]),
    trans.__('%1 (rank %2)', value(most[1]), most[0]),
    count(metric.ranks.size),
  ];
}

function lastText(series: RankSeries | undefined): string {
  if (!series) {
    return '–';
  }
  switch (series.last) {
    case 'nan':
      return 'NaN';
    case 'inf':
      return '∞';
    case '-inf':
      return '−∞';
    default:
      return value(series.last);
  }
}
