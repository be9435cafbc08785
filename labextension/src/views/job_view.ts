/**
 * A job as one view: its header, why it failed, and tabs with its output, metrics, ranks, start-up and source. Draws what
 * a `JobSource` says and nothing else; whoever made it disposes of it.
 */
import type { JobSource as SourceFiles, JobStatus, StreamError } from '../protocol';
import { element, setText } from './elements';
import { failureTitle, FailureCard } from './failure_card';
import { CellPlaces } from './frame_places';
import { errorText, Header } from './header';
import { watchSight } from './in_sight';
import { phaseOfStatus } from './job_words';
import { LogsView } from './logs/logs_view';
import { MainChart } from './metrics/main_chart';
import { MetricStore } from './metrics/metric_store';
import { MetricsView } from './metrics/metrics_view';
import { ownKeys } from './own_keys';
import { Program } from './program';
import { rankMarks } from './rank_rows';
import { Ranks } from './ranks';
import type { JobSource, Subscription } from './source';
import { phaseWord } from './state_marks';
import { Tabs } from './tabs';
import { Waterfall } from './waterfall';

export interface JobViewOptions {
  /** Shown below the sentence that says that the job is not known here: what the notebook has kept of it. */
  fallback?: HTMLElement;
  /** Unix seconds by this browser's clock. */
  now?: () => number;
  /** In pixels, of a chart, where the page has none to give. */
  chartWidth?: () => number;
}

export class JobView {
  readonly node: HTMLElement;
  private readonly source: JobSource;
  private readonly options: JobViewOptions;
  private readonly now: () => number;
  private readonly body = element('div', { class: 'jp-gpulayer-body', hidden: true });
  private readonly notice = element('div', { class: 'jp-gpulayer-notice', hidden: true });
  private readonly said = element('div', { class: 'jp-gpulayer-said', role: 'status', 'aria-live': 'polite' });
  private readonly header: Header;
  private readonly failure: FailureCard;
  private readonly tabs: Tabs;
  private readonly store = new MetricStore();
  private readonly subscriptions: Subscription[] = [];
  private readonly mainChart: MainChart;
  private readonly output = element('div', { class: 'jp-gpulayer-output' });
  private isFollowed = false;
  private logs: LogsView | null = null;
  private metrics: MetricsView | null = null;
  private ranks: Ranks | null = null;
  private waterfall: Waterfall | null = null;
  private program: Program | null = null;
  private status: JobStatus | null = null;
  private files: Promise<SourceFiles> | null = null;
  private hasAskedForCells = false;

  constructor(source: JobSource, options: JobViewOptions = {}) {
    const { trans } = source;
    this.source = source;
    this.options = options;
    this.now = options.now ?? (() => source.now?.() ?? Date.now() / 1000);
    this.header = new Header(source, this.now, () => this.tick());
    this.failure = new FailureCard(trans, (path, line) => this.showSource(path, line));
    this.mainChart = new MainChart(this.store, trans, options.chartWidth, () => {
      this.tabs.select('metrics');
      this.tabs.focus();
    });
    this.tabs = new Tabs(trans.__('Views of the job'), [
      {
        id: 'output',
        label: trans.__('Output'),
        draw: () => this.drawOutput(),
        onShown: is => this.mainChart.setShown(is),
      },
      {
        id: 'metrics',
        label: trans.__('Metrics'),
        draw: () => this.drawMetrics(),
        onShown: is => this.metrics?.setShown(is),
      },
      { id: 'ranks', label: trans.__('Ranks'), draw: () => this.drawRanks(), onShown: () => this.update() },
      { id: 'start-up', label: trans.__('Start-up'), draw: () => this.drawWaterfall(), onShown: () => this.update() },
      { id: 'source', label: trans.__('Source'), draw: () => this.drawSource() },
    ]);
    this.body.append(this.header.node, this.failure.node, this.tabs.list, this.tabs.panels);
    this.node = element('div', { class: 'jp-gpulayer-view' }, this.notice, this.body, this.said);
    this.subscriptions.push(
      source.job(
        status => this.take(status),
        error => this.fail(error),
      ),
      ownKeys(this.node),
      watchSight(this.node, isInSight => this.onSight(isInSight)),
    );
  }

  dispose(): void {
    for (const one of [...this.subscriptions, this.header, this.mainChart, this.store, this.logs, this.metrics]) {
      one?.dispose();
    }
    this.node.remove();
  }

  /** Metrics are many: those of an output that was never scrolled to are not asked for, and out of sight none are drawn. */
  private onSight(isInSight: boolean): void {
    this.mainChart.setInSight(isInSight);
    if (isInSight && !this.isFollowed) {
      this.isFollowed = true;
      this.subscriptions.push(this.source.metrics(page => this.store.add(page)));
      this.subscriptions.push(this.store.onChange(() => this.tabs.offer('metrics', this.store.series.size > 0)));
    }
  }

  private take(status: JobStatus): void {
    const before = this.status;
    this.status = status;
    this.notice.hidden = true;
    this.body.hidden = false;
    this.header.update(status);
    this.failure.update(status);
    const hasBegun = status.started_at !== null || status.tasks.length > 0;
    this.tabs.offer('output', hasBegun);
    this.tabs.offer('ranks', status.tasks.length > 0);
    this.tabs.offer('start-up', status.started_at !== null);
    const hasSource = status.spec.kind === 'distributed' || status.spec.source !== null || status.spec.cells.length > 0;
    this.tabs.offer('source', hasBegun && hasSource);
    this.tellInCells(status);
    this.update();
    this.announce(before, status);
  }

  private update(): void {
    const status = this.status;
    if (status === null) {
      return;
    }
    this.logs?.setRanks(rankMarks(status));
    if (this.tabs.selected === 'ranks') {
      this.ranks?.update(status);
    } else if (this.tabs.selected === 'start-up') {
      this.waterfall?.update(status);
    }
  }

  /** A step that goes on is told with its time. */
  private tick(): void {
    if (this.status !== null && this.tabs.selected === 'start-up') {
      this.waterfall?.update(this.status);
    }
  }

  /** Of a notebook's program, a failure's places are told as the cells have them; those of any other stay as they are. */
  private tellInCells(status: JobStatus): void {
    const { cells } = status.spec;
    if (this.hasAskedForCells || status.state !== 'failed' || cells.length === 0) {
      return;
    }
    this.hasAskedForCells = true;
    this.readSource().then(
      ({ files }) => {
        const manifest = files.find(file => file.path === 'manifest.json')?.text;
        this.failure.setCells(new CellPlaces(manifest ?? '', cells));
      },
      // The places stay those of the program's files.
      () => (this.hasAskedForCells = false),
    );
  }

  /** It never changes, so it is read once; again only where that failed. */
  private readSource(): Promise<SourceFiles> {
    this.files ??= this.source.readSource().catch((error: unknown) => {
      this.files = null;
      throw error;
    });
    return this.files;
  }

  /** Said aloud when the state changes, not when a notebook with an old job is opened. */
  private announce(before: JobStatus | null, status: JobStatus): void {
    const { trans } = this.source;
    const phase = phaseOfStatus(status);
    if (before === null || phaseOfStatus(before) === phase) {
      return;
    }
    const said = trans.__('Job %1: %2', status.name, phaseWord(phase, trans));
    setText(this.said, phase === 'failed' ? `${said}. ${failureTitle(status, trans)}` : said);
  }

  private fail(error: StreamError): void {
    const { trans } = this.source;
    this.notice.hidden = false;
    if (this.status !== null || error.code !== 'unknown_job') {
      this.notice.replaceChildren(errorText(error));
      return;
    }
    const words = trans.__('Job %1 is not known here: it ran in another home, or is gone.', this.source.jobId);
    this.notice.replaceChildren(
      element('p', { class: 'jp-gpulayer-note' }, words),
      ...[this.options.fallback ?? ''].filter(Boolean),
    );
  }

  private drawOutput(): HTMLElement {
    this.logs = new LogsView(this.source);
    this.output.append(this.logs.node, this.mainChart.node);
    if (this.status !== null) {
      this.logs.setRanks(rankMarks(this.status));
    }
    const guilty = this.status?.state === 'failed' ? this.status.failure?.rank : null;
    if (guilty !== null && guilty !== undefined) {
      this.logs.selectRank(guilty);
    }
    return this.output;
  }

  private drawMetrics(): HTMLElement {
    this.metrics = new MetricsView(this.store, this.source.trans, this.options.chartWidth);
    return this.metrics.node;
  }

  private drawRanks(): HTMLElement {
    this.ranks = new Ranks(this.source.trans, rank => {
      this.tabs.select('output');
      this.logs?.selectRank(rank);
      this.logs?.focus(); // the button that was pressed is out of sight
    });
    return this.ranks.node;
  }

  private drawWaterfall(): HTMLElement {
    this.waterfall = new Waterfall(this.source.trans, this.now);
    return this.waterfall.node;
  }

  private drawSource(): HTMLElement {
    const { trans } = this.source;
    this.program = new Program({ trans, readSource: () => this.readSource() }, words => {
      this.tabs.setLabel('source', words === null ? trans.__('Source') : trans.__('Source (%1)', words));
    });
    void this.program.read();
    return this.program.node;
  }

  private showSource(path: string, line: number): void {
    this.tabs.select('source');
    this.program?.show(path, line);
  }
}
