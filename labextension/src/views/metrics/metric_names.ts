/** How metrics are grouped by their names: `train/loss` and `val/loss` belong together, in one way or the other. Pure. */
import type { MetricSeries } from './metric_series';

const MAIN_NAMES = ['loss', 'accuracy', 'acc'];
const MOST_TOGETHER = 3;

/** `train` of `train/loss`; empty where the name has no group. */
export function groupOf(name: string): string {
  return name.includes('/') ? name.slice(0, name.lastIndexOf('/')) : '';
}

/** `loss` of `train/loss` and of `train_loss`. */
export function kindOf(name: string): string {
  const last = name.slice(name.lastIndexOf('/') + 1);
  const found = MAIN_NAMES.find(kind => last === kind || last.endsWith(`_${kind}`));
  return found ?? last;
}

/** What stands before the kind: `train`; the whole name where nothing does. */
export function labelOf(name: string): string {
  const kind = kindOf(name);
  const before = name.slice(0, name.length - kind.length).replace(/[/_]$/, '');
  return before || name;
}

/** By their groups in the order in which they came, those without one first: they have no heading that could end the group above. */
export function grouped(all: readonly MetricSeries[]): [group: string, metrics: MetricSeries[]][] {
  const groups = new Map<string, MetricSeries[]>();
  for (const metric of all) {
    groups.set(groupOf(metric.name), [...(groups.get(groupOf(metric.name)) ?? []), metric]);
  }
  return [...groups].sort(([one], [other]) => Number(one !== '') - Number(other !== ''));
}

/** Those of the one small chart beside the output: the losses where there are any, else what came first. */
export function mainMetrics(all: readonly MetricSeries[]): MetricSeries[] {
  const first = MAIN_NAMES.map(name => all.find(metric => kindOf(metric.name) === name)).find(Boolean) ?? all[0];
  if (!first) {
    return [];
  }
  const kind = kindOf(first.name);
  return all.filter(metric => kindOf(metric.name) === kind && metric.axis === first.axis).slice(0, MOST_TOGETHER);
}
