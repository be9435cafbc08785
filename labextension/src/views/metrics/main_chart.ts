/** The one small chart beside a job's output: its loss, over all ranks. */
import { button, element, setText } from '../elements';
import type { Subscription, Translator } from '../source';
import { Chart } from './chart';
import { chartData } from './chart_data';
import { kindOf, labelOf, mainMetrics } from './metric_names';
import type { MetricStore } from './metric_store';

const HEIGHT = 130;

export class MainChart {
  readonly node = element('div', { class: 'jp-gpulayer-main-chart', hidden: true });
  private readonly store: MetricStore;
  private readonly trans: Translator;
  private readonly width: (() => number) | undefined;
  private readonly changes: Subscription;
  private readonly more: HTMLButtonElement;
  private chart: Chart | null = null;
  private title = '';
  private isShown = true;
  private isInSight = true;

  /** @param onMore - shows the others, which are only counted here. */
  constructor(store: MetricStore, trans: Translator, width?: () => number, onMore: () => void = () => undefined) {
    this.store = store;
    this.trans = trans;
    this.width = width;
    this.more = button('', onMore, { class: 'jp-gpulayer-link', hidden: true });
    this.changes = store.onChange(() => this.draw());
  }

  setShown(isShown: boolean): void {
    this.isShown = isShown;
    this.draw();
  }

  setInSight(isInSight: boolean): void {
    this.isInSight = isInSight;
    this.draw();
  }

  dispose(): void {
    this.changes.dispose();
    this.chart?.dispose();
  }

  private draw(): void {
    const metrics = mainMetrics([...this.store.series.values()]);
    const [first] = metrics;
    this.node.hidden = !first;
    if (!first || !this.isShown || !this.isInSight) {
      return;
    }
    const title = metrics.length > 1 ? kindOf(first.name) : first.name;
    if (this.chart === null || title !== this.title) {
      this.title = title;
      this.chart?.dispose();
      this.chart = new Chart(this.trans, { title, height: HEIGHT, width: this.width });
      this.node.replaceChildren(this.chart.node, this.more);
    }
    const others = this.store.series.size - metrics.length;
    this.more.hidden = others === 0;
    setText(this.more, this.trans.__('%1 more in Metrics', others));
    const labels = metrics.length > 1 ? metrics.map(metric => labelOf(metric.name)) : [];
    this.chart.draw(chartData(metrics, 'spread', this.trans, labels));
  }
}
