/** The first line of a job: its state, where it runs, for how long, how it started; what it waits for; its progress; and how to stop it. */
import type { JobStatus } from '../protocol';
import { copyButton } from './copying';
import { button, element, isRepeated, leaveFocusAt, setBusy, setText } from './elements';
import {
  hostWords,
  phaseOfStatus,
  progressShare,
  progressWords,
  shapeWords,
  startWords,
  stateWords,
} from './job_words';
import type { JobSource } from './source';
import { stateMark, type Phase } from './state_marks';
import { WaysOut } from './ways_out';

const TICK_MS = 1000;

export class Header {
  readonly node: HTMLElement;
  private readonly source: JobSource;
  private readonly now: () => number;
  private readonly mark = element('span', { class: 'jp-gpulayer-mark-place' });
  private readonly name = element('span', { class: 'jp-gpulayer-name' });
  private readonly facts = element('span', { class: 'jp-gpulayer-facts' });
  private readonly connection = element('span', { class: 'jp-gpulayer-connection', hidden: true });
  private readonly whyNot = element('span', { class: 'jp-gpulayer-why-not', hidden: true });
  private readonly stop: HTMLButtonElement;
  private readonly waysOut: WaysOut;
  private readonly error = element('div', { class: 'jp-gpulayer-action-error', role: 'alert', hidden: true });
  private readonly progress = element('div', { class: 'jp-gpulayer-progress', hidden: true });
  private readonly bar = element('div', { class: 'jp-gpulayer-bar', role: 'progressbar' }, element('div'));
  private readonly progressText = element('span', { class: 'jp-gpulayer-progress-text' });
  private readonly ticks: ReturnType<typeof setInterval>;
  private readonly connected;
  private status: JobStatus | null = null;
  private phase: Phase | null = null;
  private asked = false;
  private behind = 0;

  /**
   * @param now - Unix seconds by this browser's clock.
   * @param onTick - called when what is said of the time is drawn again, while the job has not ended.
   */
  constructor(
    source: JobSource,
    now: () => number,
    private readonly onTick: () => void = () => undefined,
  ) {
    this.source = source;
    this.now = now;
    const { trans, actions } = source;
    this.stop = button(trans.__('Stop'), event => void this.cancel(event), {
      class: 'jp-gpulayer-button jp-gpulayer-stop',
      hidden: true,
    });
    const panel = actions.openInPanel ? button(trans.__('Open in panel'), () => actions.openInPanel?.()) : null;
    const buttons = element('span', { class: 'jp-gpulayer-actions' }, this.whyNot, panel, this.stop);
    const id = copyButton(() => source.jobId, trans.__('Copy the job’s id %1', source.jobId), trans, source.jobId, {
      class: 'jp-gpulayer-id',
      title: trans.__('The job’s id; a click copies it'),
    });
    const line = element(
      'div',
      { class: 'jp-gpulayer-head' },
      this.mark,
      element('span', { class: 'jp-gpulayer-title' }, this.name, ' ', this.facts, ' ', id, this.connection),
      buttons,
    );
    this.waysOut = new WaysOut(source, error => this.say(error));
    this.bar.setAttribute('aria-label', trans.__('Progress'));
    this.progress.append(this.bar, this.progressText);
    this.node = element('header', { class: 'jp-gpulayer-header' }, line, this.waysOut.node, this.progress, this.error);
    this.connected = source.connection.onChange(() => this.drawConnection());
    this.drawConnection();
    this.ticks = setInterval(() => this.tick(), TICK_MS);
  }

  update(status: JobStatus): void {
    const phase = phaseOfStatus(status);
    this.status = status;
    // A server whose clock is ahead would show a job that began in the future.
    this.behind = Math.max(this.behind, (status.started_at ?? status.created_at) - this.now());
    if (phase !== this.phase) {
      this.phase = phase;
      this.asked = false;
      this.mark.replaceChildren(stateMark(phase));
      this.node.dataset['phase'] = phase;
      this.error.hidden = true;
    }
    setText(this.name, status.name);
    this.drawFacts();
    this.drawStop();
    this.drawProgress();
    this.waysOut.update(status, this.time);
  }

  dispose(): void {
    clearInterval(this.ticks);
    this.connected.dispose();
  }

  /** By the clock that the job's times are told by. */
  private get time(): number {
    return this.now() + this.behind;
  }

  private tick(): void {
    if (this.status !== null && this.status.ended_at === null && !document.hidden) {
      this.drawFacts();
      this.drawStop();
      this.waysOut.update(this.status, this.time);
      this.onTick();
    }
  }

  private drawFacts(): void {
    const status = this.status;
    if (status === null) {
      return;
    }
    const { trans } = this.source;
    const shape = [shapeWords(status, trans), hostWords(status, trans)].filter(Boolean).join(' ');
    const facts = [stateWords(status, this.time, trans), shape, startWords(status, trans)];
    if (status.spec.retries > 0 && status.attempt > 1) {
      facts.push(trans.__('attempt %1 of at most %2', status.attempt, status.spec.retries + 1));
    }
    setText(this.facts, facts.filter(Boolean).join(' · '));
  }

  private drawStop(): void {
    const { trans, actions } = this.source;
    const ended = this.status === null || this.status.ended_at !== null;
    const why = ended ? undefined : actions.whyNoCancel;
    setText(this.whyNot, why ?? '');
    this.whyNot.hidden = !why;
    const hadFocus = document.activeElement === this.stop;
    this.stop.hidden = ended || Boolean(why);
    if (hadFocus && this.stop.hidden) {
      leaveFocusAt(this.node);
    }
    const isStopping = this.phase === 'stopping';
    setBusy(this.stop, this.asked);
    setText(this.stop, this.asked ? trans.__('Stopping…') : isStopping ? trans.__('Kill at once') : trans.__('Stop'));
    this.stop.title = isStopping
      ? trans.__('End the ranks without waiting for their grace')
      : trans.__('Cancel the job: its ranks are interrupted, and killed after their grace');
  }

  private drawProgress(): void {
    const status = this.status;
    const isOver = status?.state === 'succeeded';
    const words = status === null || isOver ? null : progressWords(status, this.source.trans);
    this.progress.hidden = status === null || words === null;
    if (status === null || words === null) {
      return;
    }
    setText(this.progressText, words);
    const share = progressShare(status);
    this.bar.hidden = share === null;
    (this.bar.firstElementChild as HTMLElement).style.width = `${((share ?? 0) * 100).toFixed(1)}%`;
    this.bar.setAttribute('aria-valuemin', '0');
    this.bar.setAttribute('aria-valuemax', '100');
    this.bar.setAttribute('aria-valuenow', String(Math.round((share ?? 0) * 100)));
    this.bar.setAttribute('aria-valuetext', words);
  }

  private drawConnection(): void {
    const { connection, trans } = this.source;
    this.connection.hidden = connection.state === 'connected';
    setText(
      this.connection,
      connection.state === 'reconnecting'
        ? ` · ${trans.__('reconnecting…')}`
        : connection.state === 'offline'
          ? ` · ${trans.__('offline: this is the last that is known')}`
          : '',
    );
    this.drawStop();
  }

  private async cancel(event: MouseEvent): Promise<void> {
    if (isRepeated(event)) {
      return; // the second of a double click would kill what the first asked to stop
    }
    const force = this.phase === 'stopping';
    this.asked = true;
    this.error.hidden = true;
    this.drawStop();
    try {
      await this.source.actions.cancel(force);
    } catch (error) {
      this.asked = false;
      this.say(error);
    }
    this.drawStop();
  }

  private say(error: unknown): void {
    this.error.textContent = errorText(error);
    this.error.hidden = false;
  }
}

/** An error's message and its way out, as one text. */
export function errorText(error: unknown): string {
  const { message, fix } = (error ?? {}) as { message?: string; fix?: string | null };
  return [message ?? String(error), fix].filter(Boolean).join(' ');
}
