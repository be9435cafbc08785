/** All metrics of a job: a chart each, grouped by name, or a table of the newest values. */
import { button, element, setText } from '../elements';
import type { Subscription, Translator } from '../source';
import { count } from '../units';
import { Chart } from './chart';
import { chartData, type Mode } from './chart_data';
import { grouped } from './metric_names';
import { MOST_METRICS, type MetricStore } from './metric_store';
import type { MetricSeries } from './metric_series';
import { metricTable } from './metric_table';

/** Past these a line a rank is a tangle: the mean and the spread are shown first. */
const MOST_LINES = 8;
const HEIGHT = 160;

interface Made {
  metric: MetricSeries;
  chart: Chart;
  drawn: string;
  isSeen: boolean;
}

export class MetricsView {
  readonly node = element('div', { class: 'jp-gpulayer-metrics' });
  private readonly _store: MetricStore;
  private readonly _trans: Translator;
  private readonly _width: (() => number) | undefined;
  private readonly _bar: HTMLElement;
  private readonly _mode: HTMLButtonElement;
  private readonly _log: HTMLInputElement;
  private readonly _asTable: HTMLButtonElement;
  private readonly _note = element('p', { class: 'jp-gpulayer-note' });
  private readonly _charts = element('div', { class: 'jp-gpulayer-charts' });
  private readonly _table: HTMLElement;
  private readonly _made = new Map<MetricSeries, Made>();
  private readonly _changes: Subscription;
  private readonly _seen: IntersectionObserver | null;
  private _chosen: Mode | null = null;
  private _isShown = false;
  private _isTable = false;
  private _order = '';
  private _draws = false;

  /** @param width - of a chart, where the page has none to give. */
  constructor(store: MetricStore, trans: Translator, width?: () => number) {
    this._store = store;
    this._trans = trans;
    this._width = width;
    this._mode = button('', () => this._toggleMode(), { 'aria-pressed': 'false' });
    this._log = element('input', { type: 'checkbox' });
    this._log.addEventListener('change', () => this._draw());
    this._asTable = button(trans.__('As table'), () => this._toggleTable(), { 'aria-pressed': 'false' });
    this._bar = element(
      'div',
      { class: 'jp-gpulayer-toolbar' },
      this._mode,
      element('label', {}, this._log, ' ', trans.__('Log scale')),
      this._asTable,
    );
    this._table = element('div', {
      class: 'jp-gpulayer-scroll',
      tabindex: 0,
      role: 'region',
      'aria-label': trans.__('Table of metrics'),
      hidden: true,
    });
    this.node.append(this._bar, this._note, this._charts, this._table);
    this._seen =
      typeof IntersectionObserver === 'undefined' ? null : new IntersectionObserver(entries => this._onSeen(entries));
    this._changes = store.onChange(() => this._draw());
  }

  /** Nothing is drawn while the tab is not open. */
  setShown(isShown: boolean): void {
    this._isShown = isShown;
    this._draw();
  }

  dispose(): void {
    this._isShown = false; // a drawing that was put off finds nothing to draw
    this._changes.dispose();
    this._seen?.disconnect();
    this._made.forEach(made => made.chart.dispose());
    this._made.clear();
  }

  private get _all(): MetricSeries[] {
    return [...this._store.series.values()];
  }

  private _draw(): void {
    if (!this._isShown) {
      return;
    }
    const trans = this._trans;
    const ranks = new Set(this._all.flatMap(metric => [...metric.ranks.keys()])).size;
    const mode = this._modeFor(ranks);
    this._mode.hidden = ranks < 2 || this._isTable;
    setText(this._mode, trans.__('A line a rank'));
    this._mode.setAttribute('aria-pressed', String(mode === 'ranks'));
    this._mode.title =
      mode === 'ranks' ? trans.__('Show the mean and the spread over ranks') : trans.__('Show a line for each rank');
    (this._log.parentElement as HTMLElement).hidden = this._isTable;
    this._asTable.setAttribute('aria-pressed', String(this._isTable));
    this._drawNote();
    this._charts.hidden = this._isTable;
    this._table.hidden = !this._isTable;
    if (this._isTable) {
      this._table.replaceChildren(metricTable(this._all, trans));
      return;
    }
    this._lay();
    if (!this._draws) {
      this._drawNext(mode);
    }
  }

  /** One chart at a time: the lines of many ranks in many charts would hold up the page. */
  private _drawNext(mode: Mode): void {
    const key = `${mode} ${this._log.checked}`;
    const stale = [...this._made.values()].filter(
      made => made.isSeen && made.drawn !== `${made.metric.version} ${key}`,
    );
    const [made] = stale;
    if (made) {
      made.drawn = `${made.metric.version} ${key}`;
      made.chart.isLog = this._log.checked;
      made.chart.draw(chartData([made.metric], mode, this._trans));
    }
    this._draws = stale.length > 1;
    if (this._draws) {
      this._store.schedule.soon(() => {
        this._draws = false;
        this._draw();
      });
    }
  }

  /** Put the charts in their groups, where any came or went. */
  private _lay(): void {
    const groups = grouped(this._all);
    const order = JSON.stringify([
      this._store.attempt,
      groups.map(([group, metrics]) => [group, metrics.map(metric => [metric.name, metric.axis])]),
    ]);
    if (order === this._order) {
      return;
    }
    this._order = order;
    for (const [metric, made] of this._made) {
      if (!this._all.includes(metric)) {
        made.chart.dispose();
        this._made.delete(metric);
      }
    }
    this._charts.replaceChildren(
      ...groups.map(([group, metrics]) => {
        const charts = element(
          'div',
          { class: 'jp-gpulayer-chart-grid' },
          ...metrics.map(metric => this._chartOf(metric).node),
        );
        const isNamed = groups.length > 1 && group !== '';
        return element(
          'section',
          {},
          isNamed && element('div', { class: 'jp-gpulayer-group', role: 'heading', 'aria-level': 3 }, group),
          charts,
        );
      }),
    );
  }

  private _chartOf(metric: MetricSeries): Chart {
    let made = this._made.get(metric);
    if (!made) {
      const title =
        metric.axis === 'time' && this._store.series.has(metric.name)
          ? this._trans.__('%1, over time', metric.name)
          : metric.name;
      const chart = new Chart(this._trans, { title, height: HEIGHT, width: this._width });
      made = { metric, chart, drawn: '', isSeen: this._seen === null };
      this._made.set(metric, made);
      this._seen?.observe(chart.node);
    }
    return made.chart;
  }

  /** Of hundreds of charts only those on the screen are drawn. */
  private _onSeen(entries: IntersectionObserverEntry[]): void {
    for (const made of this._made.values()) {
      const entry = entries.find(one => one.target === made.chart.node);
      made.isSeen = entry?.isIntersecting ?? made.isSeen;
    }
    this._draw();
  }

  private _drawNote(): void {
    const { received, kept, lost, leftOut } = this._store;
    const trans = this._trans;
    const parts = [
      kept < received && trans.__('thinned out: %1 of %2 points were kept', count(kept), count(received)),
      lost > 0 && trans._n('%1 point was lost on its way', '%1 points were lost on their way', lost),
      leftOut.size > 0 && trans.__('the first %1 names are drawn; %2 more came', MOST_METRICS, count(leftOut.size)),
      this._store.attempt > 1 && trans.__('of attempt %1', this._store.attempt),
    ].filter(part => part !== false);
    setText(this._note, parts.join(' · '));
    this._note.hidden = !parts.length;
  }

  private _modeFor(ranks: number): Mode {
    return this._chosen ?? (ranks > MOST_LINES ? 'spread' : 'ranks');
  }

  private _toggleMode(): void {
    this._chosen = this._mode.getAttribute('aria-pressed') === 'true' ? 'spread' : 'ranks';
    this._draw();
  }

  private _toggleTable(): void {
    this._isTable = !this._isTable;
    this._draw();
  }
}
