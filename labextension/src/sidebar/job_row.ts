/** One job in the sidebar's list: its mark, name, time, a line of what matters, which one of its name it is, its progress, and Stop. */
import type { JobSummary } from '../protocol';
import { element, setText } from '../views/elements';
import type { Translator } from '../views/source';
import { phaseOf, phaseWord, stateMark } from '../views/state_marks';
import type { Phase } from '../views/state_marks';
import { clock, moment, took, value } from '../views/units';
import { isOver } from './job_list';

export interface RowActions {
  open(jobId: string): void;
  cancel(jobId: string): void;
}

export class JobRow {
  constructor(
    job: JobSummary,
    actions: RowActions,
    private readonly trans: Translator,
  ) {
    const id = job.job_id;
    this.open.addEventListener('click', () => actions.open(id));
    this.stop.addEventListener('click', () => actions.cancel(id));
    this.open.append(
      this.mark,
      element('span', { class: 'jp-gpulayer-jobs-head' }, this.name, this.time),
      this.line,
      this.which,
    );
    this.node.append(this.open, this.stop);
    this.node.dataset['jobId'] = id;
    setText(this.stop, trans.__('Stop'));
    this.job = job;
  }

  /** What was said last; the row draws only what differs from it. */
  job: JobSummary;

  update(job: JobSummary, now: number): void {
    this.job = job;
    const phase = phaseOf(job);
    if (phase !== this.phase) {
      this.phase = phase;
      this.node.dataset['phase'] = phase;
      this.mark.replaceChildren(
        stateMark(phase),
        element('span', { class: 'jp-gpulayer-jobs-spoken' }, phaseWord(phase, this.trans)),
      );
    }
    setText(this.name, job.name);
    const line = lineOf(job, this.trans);
    setText(this.line, line);
    // Cells that are run again, and those of other notebooks, have the same names.
    setText(this.which, `${moment(job.created_at, now)} · ${job.job_id}`);
    this.open.title = `${job.name} · ${job.job_id}\n${line}`;
    this.stop.hidden = isOver(job) || job.cancel_requested;
    this.stop.setAttribute('aria-label', this.trans.__('Stop %1', job.name));
    this.showProgress(job);
    this.tick(now);
  }

  /** The time alone. */
  tick(now: number): void {
    setText(this.time, timeOf(this.job, now, this.trans));
  }

  /** Whether Tab comes here: one row of the list at a time. */
  set isCurrent(isCurrent: boolean) {
    this.open.tabIndex = isCurrent ? 0 : -1;
    this.stop.tabIndex = isCurrent ? 0 : -1;
  }

  private showProgress(job: JobSummary): void {
    const share = job.state === 'running' ? shareOf(job) : null;
    if (share === null) {
      this.progress?.remove();
      this.progress = null;
      return;
    }
    if (this.progress === null) {
      this.progress = element('progress', { class: 'jp-gpulayer-jobs-progress', max: 1 });
      this.node.append(this.progress);
    }
    this.progress.value = share;
    this.progress.setAttribute('aria-label', this.trans.__('Progress of %1', job.name));
  }

  readonly node = element('li', { class: 'jp-gpulayer-jobs-row' });
  readonly open = element('button', { type: 'button', class: 'jp-gpulayer-jobs-open', tabindex: -1 });
  readonly stop = element('button', {
    type: 'button',
    class: 'jp-gpulayer-button jp-gpulayer-jobs-stop',
    tabindex: -1,
  });
  private readonly mark = element('span', { class: 'jp-gpulayer-jobs-mark' });
  private readonly name = element('span', { class: 'jp-gpulayer-jobs-name' });
  private readonly time = element('span', { class: 'jp-gpulayer-jobs-time' });
  private readonly line = element('span', { class: 'jp-gpulayer-jobs-line' });
  private readonly which = element('span', { class: 'jp-gpulayer-jobs-which' });
  private progress: HTMLProgressElement | null = null;
  private phase: Phase | null = null;
}

function timeOf(job: JobSummary, now: number, trans: Translator): string {
  if (job.ended_at !== null) {
    return job.started_at === null ? '' : took(job.ended_at - job.started_at);
  }
  return job.started_at === null ? trans.__('waits') : clock(now - job.started_at);
}

function lineOf(job: JobSummary, trans: Translator): string {
  if (job.state === 'failed' && job.failure !== null) {
    return job.failure;
  }
  if (job.state === 'queued' && job.waiting_for !== null && !job.cancel_requested) {
    return job.waiting_for;
  }
  const shape = shapeOf(job, trans);
  const progress = job.state === 'running' ? progressOf(job, trans) : null;
  return progress === null ? shape : `${shape} · ${progress}`;
}

function shapeOf(job: JobSummary, trans: Translator): string {
  const kind = job.accelerator ?? trans._n('device', 'devices', job.devices);
  if (job.devices === 0) {
    return trans.__('no device');
  }
  return job.nodes === 1
    ? `${job.devices} × ${kind}`
    : trans._n('%1 node × %2 %3', '%1 nodes × %2 %3', job.nodes, job.devices, kind);
}

function progressOf(job: JobSummary, trans: Translator): string | null {
  if (job.progress === null) {
    return null;
  }
  const { done, total, text } = job.progress;
  return text ?? (total === null ? value(done) : trans.__('%1 of %2', value(done), value(total)));
}

function shareOf(job: JobSummary): number | null {
  const total = job.progress?.total ?? null;
  if (job.progress === null || total === null || !(total > 0)) {
    return null;
  }
  return Math.min(1, Math.max(0, job.progress.done / total));
}
