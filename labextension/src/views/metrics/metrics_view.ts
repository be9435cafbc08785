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
  private readonly store: MetricStore;
  private readonly trans: Translator;
  private readonly width: (() => number) | undefined;
  private readonly bar: HTMLElement;
  private readonly mode: HTMLButtonElement;
  private readonly log: HTMLInputElement;
  private readonly asTable: HTMLButtonElement;
  private readonly note = element('p', { class: 'jp-gpulayer-note' });
  private readonly charts = element('div', { class: 'jp-gpulayer-charts' });
  private readonly table: HTMLElement;
  private readonly made = new Map<MetricSeries, Made>();
  private readonly changes: Subscription;
  private readonly seen: IntersectionObserver | null;
  private chosen: Mode | null = null;
  private isShown = false;
  private isTable = false;
  private order = '';
  private draws = false;

  /** @param width - of a chart, where the page has none to give. */
  constructor(store: MetricStore, trans: Translator, width?: () => number) {
    this.store = store;
    this.trans = trans;
    this.width = width;
    this.mode = button('', () => this.toggleMode(), { 'aria-pressed': 'false' });
    this.log = element('input', { type: 'checkbox' });
    this.log.addEventListener('change', () => this.draw());
    this.asTable = button(trans.__('As table'), () => this.toggleTable(), { 'aria-pressed': 'false' });
    this.bar = element(
      'div',
      { class: 'jp-gpulayer-toolbar' },
      this.mode,
      element('label', {}, this.log, ' ', trans.__('Log scale')),
      this.asTable,
    );
    this.table = element('div', {
      class: 'jp-gpulayer-scroll',
      tabindex: 0,
      role: 'region',
      'aria-label': trans.__('Table of metrics'),
      hidden: true,
    });
    this.node.append(this.bar, this.note, this.charts, this.table);
    this.seen =
      typeof IntersectionObserver === 'undefined' ? null : new IntersectionObserver(entries => this.onSeen(entries));
    this.changes = store.onChange(() => this.draw());
  }

  /** Nothing is drawn while the tab is not open. */
  setShown(isShown: boolean): void {
    this.isShown = isShown;
    this.draw();
  }

  dispose(): void {
    this.isShown = false; // a drawing that was put off finds nothing to draw
    this.changes.dispose();
    this.seen?.disconnect();
    this.made.forEach(made => made.chart.dispose());
    this.made.clear();
  }

  private get all(): MetricSeries[] {
    return [...this.store.series.values()];
  }

  private draw(): void {
    if (!this.isShown) {
      return;
    }
    const trans = this.trans;
    const ranks = new Set(this.all.flatMap(metric => [...metric.ranks.keys()])).size;
    const mode = this.modeFor(ranks);
    this.mode.hidden = ranks < 2 || this.isTable;
    setText(this.mode, trans.__('A line a rank'));
    this.mode.setAttribute('aria-pressed', String(mode === 'ranks'));
    this.mode.title =
      mode === 'ranks' ? trans.__('Show the mean and the spread over ranks') : trans.__('Show a line for each rank');
    (this.log.parentElement as HTMLElement).hidden = this.isTable;
    this.asTable.setAttribute('aria-pressed', String(this.isTable));
    this.drawNote();
    this.charts.hidden = this.isTable;
    this.table.hidden = !this.isTable;
    if (this.isTable) {
      this.table.replaceChildren(metricTable(this.all, trans));
      return;
    }
    this.lay();
    if (!this.draws) {
      this.drawNext(mode);
    }
  }

  /** One chart at a time: the lines of many ranks in many charts would hold up the page. */
  private drawNext(mode: Mode): void {
    const key = `${mode} ${this.log.checked}`;
    const stale = [...this.made.values()].filter(made => made.isSeen && made.drawn !== `${made.metric.version} ${key}`);
    const [made] = stale;
    if (made) {
      made.drawn = `${made.metric.version} ${key}`;
      made.chart.isLog = this.log.checked;
      made.chart.draw(chartData([made.metric], mode, this.trans));
    }
    this.draws = stale.length > 1;
    if (this.draws) {
      this.store.schedule.soon(() => {
        this.draws = false;
        this.draw();
      });
    }
  }

  /** Put the charts in their groups, where any came or went. */
  private lay(): void {
    const groups = grouped(this.all);
    const order = JSON.stringify([
      this.store.attempt,
      groups.map(([group, metrics]) => [group, metrics.map(metric => [metric.name, metric.axis])]),
    ]);
    if (order === this.order) {
      return;
    }
    this.order = order;
    for (const [metric, made] of this.made) {
      if (!this.all.includes(metric)) {
        made.chart.dispose();
        this.made.delete(metric);
      }
    }
    this.charts.replaceChildren(
      ...groups.map(([group, metrics]) => {
        const charts = element(
          'div',
          { class: 'jp-gpulayer-chart-grid' },
          ...metrics.map(metric => this.chartOf(metric).node),
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

  private chartOf(metric: MetricSeries): Chart {
    let made = this.made.get(metric);
    if (!made) {
      const title =
        metric.axis === 'time' && this.store.series.has(metric.name)
          ? this.trans.__('%1, over time', metric.name)
          : metric.name;
      const chart = new Chart(this.trans, { title, height: HEIGHT, width: this.width });
      made = { metric, chart, drawn: '', isSeen: this.seen === null };
      this.made.set(metric, made);
      this.seen?.observe(chart.node);
    }
    return made.chart;
  }

  /** Of hundreds of charts only those on the screen are drawn. */
  private onSeen(entries: IntersectionObserverEntry[]): void {
    for (const made of this.made.values()) {
      const entry = entries.find(one => one.target === made.chart.node);
      made.isSeen = entry?.isIntersecting ?? made.isSeen;
    }
    this.draw();
  }

  private drawNote(): void {
    const { received, kept, lost, leftOut } = this.store;
    const trans = this.trans;
    const parts = [
      kept < received && trans.__('thinned out: %1 of %2 points were kept', count(kept), count(received)),
      lost > 0 && trans._n('%1 point was lost on its way', '%1 points were lost on their way', lost),
      leftOut.size > 0 && trans.__('the first %1 names are drawn; %2 more came', MOST_METRICS, count(leftOut.size)),
      this.store.attempt > 1 && trans.__('of attempt %1', this.store.attempt),
    ].filter(part => part !== false);
    setText(this.note, parts.join(' · '));
    this.note.hidden = !parts.length;
  }

  private modeFor(ranks: number): Mode {
    return this.chosen ?? (ranks > MOST_LINES ? 'spread' : 'ranks');
  }

  private toggleMode(): void {
    this.chosen = this.mode.getAttribute('aria-pressed') === 'true' ? 'spread' : 'ranks';
    this.draw();
  }

  private toggleTable(): void {
    this.isTable = !this.isTable;
    this.draw();
  }
}
