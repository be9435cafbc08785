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
  private readonly _source: JobSource;
  private readonly _options: JobViewOptions;
  private readonly _now: () => number;
  private readonly _body = element('div', { class: 'jp-gpulayer-body', hidden: true });
  private readonly _notice = element('div', { class: 'jp-gpulayer-notice', hidden: true });
  private readonly _said = element('div', { class: 'jp-gpulayer-said', role: 'status', 'aria-live': 'polite' });
  private readonly _header: Header;
  private readonly _failure: FailureCard;
  private readonly _tabs: Tabs;
  private readonly _store = new MetricStore();
  private readonly _subscriptions: Subscription[] = [];
  private readonly _mainChart: MainChart;
  private readonly _output = element('div', { class: 'jp-gpulayer-output' });
  private _isFollowed = false;
  private _logs: LogsView | null = null;
  private _metrics: MetricsView | null = null;
  private _ranks: Ranks | null = null;
  private _waterfall: Waterfall | null = null;
  private _program: Program | null = null;
  private _status: JobStatus | null = null;
  private _files: Promise<SourceFiles> | null = null;
  private _hasAskedForCells = false;

  constructor(source: JobSource, options: JobViewOptions = {}) {
    const { trans } = source;
    this._source = source;
    this._options = options;
    this._now = options.now ?? (() => source.now?.() ?? Date.now() / 1000);
    this._header = new Header(source, this._now, () => this._tick());
    this._failure = new FailureCard(trans, (path, line) => this._showSource(path, line));
    this._mainChart = new MainChart(this._store, trans, options.chartWidth, () => {
      this._tabs.select('metrics');
      this._tabs.focus();
    });
    this._tabs = new Tabs(trans.__('Views of the job'), [
      {
        id: 'output',
        label: trans.__('Output'),
        draw: () => this._drawOutput(),
        onShown: is => this._mainChart.setShown(is),
      },
      {
        id: 'metrics',
        label: trans.__('Metrics'),
        draw: () => this._drawMetrics(),
        onShown: is => this._metrics?.setShown(is),
      },
      { id: 'ranks', label: trans.__('Ranks'), draw: () => this._drawRanks(), onShown: () => this._update() },
      { id: 'start-up', label: trans.__('Start-up'), draw: () => this._drawWaterfall(), onShown: () => this._update() },
      { id: 'source', label: trans.__('Source'), draw: () => this._drawSource() },
    ]);
    this._body.append(this._header.node, this._failure.node, this._tabs.list, this._tabs.panels);
    this.node = element('div', { class: 'jp-gpulayer-view' }, this._notice, this._body, this._said);
    this._subscriptions.push(
      source.job(
        status => this._take(status),
        error => this._fail(error),
      ),
      ownKeys(this.node),
      watchSight(this.node, isInSight => this._onSight(isInSight)),
    );
  }

  dispose(): void {
    for (const one of [...this._subscriptions, this._header, this._mainChart, this._store, this._logs, this._metrics]) {
      one?.dispose();
    }
    this.node.remove();
  }

  /** Metrics are many: those of an output that was never scrolled to are not asked for, and out of sight none are drawn. */
  private _onSight(isInSight: boolean): void {
    this._mainChart.setInSight(isInSight);
    if (isInSight && !this._isFollowed) {
      this._isFollowed = true;
      this._subscriptions.push(this._source.metrics(page => this._store.add(page)));
      this._subscriptions.push(this._store.onChange(() => this._tabs.offer('metrics', this._store.series.size > 0)));
    }
  }

  private _take(status: JobStatus): void {
    const before = this._status;
    this._status = status;
    this._notice.hidden = true;
    this._body.hidden = false;
    this._header.update(status);
    this._failure.update(status);
    const hasBegun = status.started_at !== null || status.tasks.length > 0;
    this._tabs.offer('output', hasBegun);
    this._tabs.offer('ranks', status.tasks.length > 0);
    this._tabs.offer('start-up', status.started_at !== null);
    const hasSource = status.spec.kind === 'distributed' || status.spec.source !== null || status.spec.cells.length > 0;
    this._tabs.offer('source', hasBegun && hasSource);
    this._tellInCells(status);
    this._update();
    this._announce(before, status);
  }

  private _update(): void {
    const status = this._status;
    if (status === null) {
      return;
    }
    this._logs?.setRanks(rankMarks(status));
    if (this._tabs.selected === 'ranks') {
      this._ranks?.update(status);
    } else if (this._tabs.selected === 'start-up') {
      this._waterfall?.update(status);
    }
  }

  /** A step that goes on is told with its time. */
  private _tick(): void {
    if (this._status !== null && this._tabs.selected === 'start-up') {
      this._waterfall?.update(this._status);
    }
  }

  /** Of a notebook's program, a failure's places are told as the cells have them; those of any other stay as they are. */
  private _tellInCells(status: JobStatus): void {
    const { cells } = status.spec;
    if (this._hasAskedForCells || status.state !== 'failed' || cells.length === 0) {
      return;
    }
    this._hasAskedForCells = true;
    this._readSource().then(
      ({ files }) => {
        const manifest = files.find(file => file.path === 'manifest.json')?.text;
        this._failure.setCells(new CellPlaces(manifest ?? '', cells));
      },
      // The places stay those of the program's files.
      () => (this._hasAskedForCells = false),
    );
  }

  /** It never changes, so it is read once; again only where that failed. */
  private _readSource(): Promise<SourceFiles> {
    this._files ??= this._source.readSource().catch((error: unknown) => {
      this._files = null;
      throw error;
    });
    return this._files;
  }

  /** Said aloud when the state changes, not when a notebook with an old job is opened. */
  private _announce(before: JobStatus | null, status: JobStatus): void {
    const { trans } = this._source;
    const phase = phaseOfStatus(status);
    if (before === null || phaseOfStatus(before) === phase) {
      return;
    }
    const said = trans.__('Job %1: %2', status.name, phaseWord(phase, trans));
    setText(this._said, phase === 'failed' ? `${said}. ${failureTitle(status, trans)}` : said);
  }

  private _fail(error: StreamError): void {
    const { trans } = this._source;
    this._notice.hidden = false;
    if (this._status !== null || error.code !== 'unknown_job') {
      this._notice.replaceChildren(errorText(error));
      return;
    }
    const words = trans.__('Job %1 is not known here: it ran in another home, or is gone.', this._source.jobId);
    this._notice.replaceChildren(
      element('p', { class: 'jp-gpulayer-note' }, words),
      ...[this._options.fallback ?? ''].filter(Boolean),
    );
  }

  private _drawOutput(): HTMLElement {
    this._logs = new LogsView(this._source);
    this._output.append(this._logs.node, this._mainChart.node);
    if (this._status !== null) {
      this._logs.setRanks(rankMarks(this._status));
    }
    const guilty = this._status?.state === 'failed' ? this._status.failure?.rank : null;
    if (guilty !== null && guilty !== undefined) {
      this._logs.selectRank(guilty);
    }
    return this._output;
  }

  private _drawMetrics(): HTMLElement {
    this._metrics = new MetricsView(this._store, this._source.trans, this._options.chartWidth);
    return this._metrics.node;
  }

  private _drawRanks(): HTMLElement {
    this._ranks = new Ranks(this._source.trans, rank => {
      this._tabs.select('output');
      this._logs?.selectRank(rank);
      this._logs?.focus(); // the button that was pressed is out of sight
    });
    return this._ranks.node;
  }

  private _drawWaterfall(): HTMLElement {
    this._waterfall = new Waterfall(this._source.trans, this._now);
    return this._waterfall.node;
  }

  private _drawSource(): HTMLElement {
    const { trans } = this._source;
    this._program = new Program({ trans, readSource: () => this._readSource() }, words => {
      this._tabs.setLabel('source', words === null ? trans.__('Source') : trans.__('Source (%1)', words));
    });
    void this._program.read();
    return this._program.node;
  }

  private _showSource(path: string, line: number): void {
    this._tabs.select('source');
    this._program?.show(path, line);
  }
}
