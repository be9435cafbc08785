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
  private readonly _store: MetricStore;
  private readonly _trans: Translator;
  private readonly _width: (() => number) | undefined;
  private readonly _changes: Subscription;
  private readonly _more: HTMLButtonElement;
  private _chart: Chart | null = null;
  private _title = '';
  private _isShown = true;
  private _isInSight = true;

  /** @param onMore - shows the others, which are only counted here. */
  constructor(store: MetricStore, trans: Translator, width?: () => number, onMore: () => void = () => undefined) {
    this._store = store;
    this._trans = trans;
    this._width = width;
    this._more = button('', onMore, { class: 'jp-gpulayer-link', hidden: true });
    this._changes = store.onChange(() => this._draw());
  }

  setShown(isShown: boolean): void {
    this._isShown = isShown;
    this._draw();
  }

  setInSight(isInSight: boolean): void {
    this._isInSight = isInSight;
    this._draw();
  }

  dispose(): void {
    this._changes.dispose();
    this._chart?.dispose();
  }

  private _draw(): void {
    const metrics = mainMetrics([...this._store.series.values()]);
    const [first] = metrics;
    this.node.hidden = !first;
    if (!first || !this._isShown || !this._isInSight) {
      return;
    }
    const title = metrics.length > 1 ? kindOf(first.name) : first.name;
    if (this._chart === null || title !== this._title) {
      this._title = title;
      this._chart?.dispose();
      this._chart = new Chart(this._trans, { title, height: HEIGHT, width: this._width });
      this.node.replaceChildren(this._chart.node, this._more);
    }
    const others = this._store.series.size - metrics.length;
    this._more.hidden = others === 0;
    setText(this._more, this._trans.__('%1 more in Metrics', others));
    const labels = metrics.length > 1 ? metrics.map(metric => labelOf(metric.name)) : [];
    this._chart.draw(chartData(metrics, 'spread', this._trans, labels));
  }
}
