/**
 * The sidebar's content: what the connection is like, then the jobs as a list of buttons. Arrow keys go through the list,
 * Enter opens, Delete stops; rows are kept across changes, so that focus and scroll position stay.
 */
import { element, sentence, setText } from '../views/elements';
import type { Connection, Subscription, Translator } from '../views/source';
import type { StreamProblem } from '../stream';
import { isOver } from './job_list';
import type { JobList } from './job_list';
import { JobRow } from './job_row';
import type { RowActions } from './job_row';

const TICK_MS = 1_000;

export interface JobsViewOptions {
  list: JobList;
  connection: Connection & { readonly problem: StreamProblem | null };
  actions: RowActions;
  trans: Translator;
  now(): number;
}

export class JobsView {
  constructor(private readonly options: JobsViewOptions) {
    const { list, connection, trans } = options;
    this.rowsNode.setAttribute('aria-label', trans.__('Jobs'));
    this.node.append(
      element('header', { class: 'jp-gpulayer-jobs-title' }, element('h2', {}, 'GPUlayer'), this.counts),
      this.said,
      this.empty,
      this.rowsNode,
    );
    this.empty.append(
      element('p', {}, trans.__('No jobs yet.')),
      element('p', {}, sentence(trans.__('Begin a cell with %1 after %2.', '`%%gpulayer`', '`%load_ext gpulayer`'))),
    );
    this.rowsNode.addEventListener('keydown', event => this.onKey(event));
    this.rowsNode.addEventListener('focusin', event => this.onFocus(event));
    this.subscriptions = [list.onChange(() => this.draw()), connection.onChange(() => this.draw())];
    this.draw();
  }

  /** The job that the keyboard is on. */
  get currentJob(): string | null {
    return this.current;
  }

  /** To the current job; as long as none is known, to the list, and from there to the first job that comes. */
  focus(): void {
    (this.currentRow()?.open ?? this.node).focus();
  }

  /** Times tick only while somebody sees them. */
  set isVisible(isVisible: boolean) {
    clearInterval(this.timer);
    this.timer = isVisible ? setInterval(() => this.tick(), TICK_MS) : undefined;
    if (isVisible) {
      this.draw();
    }
  }

  dispose(): void {
    clearInterval(this.timer);
    for (const subscription of this.subscriptions) {
      subscription.dispose();
    }
  }

  private draw(): void {
    const { list, trans } = this.options;
    const jobs = list.jobs;
    const now = this.options.now();
    const gone = new Set(this.rows.keys());
    let before: JobRow | null = null;
    for (const job of jobs) {
      gone.delete(job.job_id);
      let row = this.rows.get(job.job_id);
      if (row === undefined) {
        row = new JobRow(job, this.options.actions, trans);
        this.rows.set(job.job_id, row);
        row.update(job, now);
      } else if (row.job !== job) {
        row.update(job, now);
      }
      const place: ChildNode | null = before === null ? this.rowsNode.firstChild : before.node.nextSibling;
      if (place !== row.node) {
        this.rowsNode.insertBefore(row.node, place);
      }
      before = row;
    }
    for (const jobId of gone) {
      this.rows.get(jobId)?.node.remove();
      this.rows.delete(jobId);
    }
    this.settleCurrent();
    this.rowsNode.hidden = jobs.length === 0;
    if (document.activeElement === this.node) {
      this.focus();
    }
    this.empty.hidden = !list.isKnown || jobs.length > 0;
    setText(this.counts, this.countWords());
    const said = this.connectionWords();
    setText(this.said, said);
    this.said.hidden = said === '';
  }

  private tick(): void {
    const now = this.options.now();
    for (const row of this.rows.values()) {
      if (!isOver(row.job)) {
        row.tick(now);
      }
    }
  }

  private countWords(): string {
    const { list, trans } = this.options;
    const running = list.jobs.filter(job => job.state === 'running').length;
    const waiting = list.jobs.filter(job => job.state === 'queued').length;
    return [running > 0 && trans.__('%1 running', running), waiting > 0 && trans.__('%1 waiting', waiting)]
      .filter(Boolean)
      .join(' · ');
  }

  private connectionWords(): string {
    const { connection, list, trans } = this.options;
    if (list.failure !== null) {
      return [list.failure.message, list.failure.fix].filter(Boolean).join(' ');
    }
    switch (connection.problem) {
      case 'missing':
        return trans.__('The Jupyter server has no GPUlayer.');
      case 'not_allowed':
        return trans.__('The Jupyter server does not let you see jobs. Log in again.');
      case 'protocol':
        return trans.__('The server has another version of GPUlayer than this page. Reload the page.');
      case null:
        break;
    }
    if (connection.state === 'offline') {
      return trans.__('The Jupyter server cannot be reached. This is what was known last.');
    }
    if (connection.state === 'reconnecting') {
      return trans.__('Reconnecting…');
    }
    return list.isKnown ? '' : trans.__('Loading jobs…');
  }

  private onKey(event: KeyboardEvent): void {
    if (event.altKey || event.ctrlKey || event.metaKey || event.shiftKey) {
      return;
    }
    const jobs = this.options.list.jobs;
    const at = jobs.findIndex(job => job.job_id === this.current);
    const to = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: jobs.length - 1 }[event.key];
    const current = this.currentRow();
    if (to !== undefined) {
      const target = jobs[Math.min(jobs.length - 1, Math.max(0, to))];
      if (target !== undefined) {
        this.setCurrent(target.job_id);
        this.currentRow()?.open.focus();
      }
    } else if (event.key === 'Delete' && current !== undefined && !current.stop.hidden) {
      this.options.actions.cancel(current.job.job_id);
    } else {
      return;
    }
    event.preventDefault();
    event.stopPropagation();
  }

  private onFocus(event: FocusEvent): void {
    const row = (event.target as Element).closest<HTMLElement>('.jp-gpulayer-jobs-row');
    const jobId = row?.dataset['jobId'];
    if (jobId !== undefined) {
      this.setCurrent(jobId);
    }
  }

  private settleCurrent(): void {
    const first = this.options.list.jobs[0]?.job_id ?? null;
    const isListed = this.current !== null && this.rows.has(this.current);
    this.setCurrent(isListed ? this.current : first);
  }

  private setCurrent(jobId: string | null): void {
    const before = this.currentRow();
    this.current = jobId;
    const row = this.currentRow();
    if (before !== undefined && before !== row) {
      before.isCurrent = false;
    }
    if (row !== undefined) {
      row.isCurrent = true;
    }
  }

  private currentRow(): JobRow | undefined {
    return this.current === null ? undefined : this.rows.get(this.current);
  }

  readonly node = element('section', { class: 'jp-gpulayer-view jp-gpulayer-jobs', tabindex: -1 });
  private readonly counts = element('span', { class: 'jp-gpulayer-jobs-counts' });
  private readonly said = element('p', { class: 'jp-gpulayer-jobs-said', role: 'status' });
  private readonly empty = element('div', { class: 'jp-gpulayer-jobs-empty', hidden: true });
  private readonly rowsNode = element('ul', { class: 'jp-gpulayer-jobs-list' });
  private readonly rows = new Map<string, JobRow>();
  private readonly subscriptions: Subscription[];
  private timer: ReturnType<typeof setInterval> | undefined;
  private current: string | null = null;
}
