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
  private readonly _source: JobSource;
  private readonly _now: () => number;
  private readonly _mark = element('span', { class: 'jp-gpulayer-mark-place' });
  private readonly _name = element('span', { class: 'jp-gpulayer-name' });
  private readonly _facts = element('span', { class: 'jp-gpulayer-facts' });
  private readonly _connection = element('span', { class: 'jp-gpulayer-connection', hidden: true });
  private readonly _whyNot = element('span', { class: 'jp-gpulayer-why-not', hidden: true });
  private readonly _stop: HTMLButtonElement;
  private readonly _waysOut: WaysOut;
  private readonly _error = element('div', { class: 'jp-gpulayer-action-error', role: 'alert', hidden: true });
  private readonly _progress = element('div', { class: 'jp-gpulayer-progress', hidden: true });
  private readonly _bar = element('div', { class: 'jp-gpulayer-bar', role: 'progressbar' }, element('div'));
  private readonly _progressText = element('span', { class: 'jp-gpulayer-progress-text' });
  private readonly _ticks: ReturnType<typeof setInterval>;
  private readonly _connected;
  private _status: JobStatus | null = null;
  private _phase: Phase | null = null;
  private _asked = false;
  private _behind = 0;

  /**
   * @param now - Unix seconds by this browser's clock.
   * @param onTick - called when what is said of the time is drawn again, while the job has not ended.
   */
  constructor(
    source: JobSource,
    now: () => number,
    private readonly _onTick: () => void = () => undefined,
  ) {
    this._source = source;
    this._now = now;
    const { trans, actions } = source;
    this._stop = button(trans.__('Stop'), event => void this._cancel(event), {
      class: 'jp-gpulayer-button jp-gpulayer-stop',
      hidden: true,
    });
    const panel = actions.openInPanel ? button(trans.__('Open in panel'), () => actions.openInPanel?.()) : null;
    const buttons = element('span', { class: 'jp-gpulayer-actions' }, this._whyNot, panel, this._stop);
    const id = copyButton(() => source.jobId, trans.__('Copy the job’s id %1', source.jobId), trans, source.jobId, {
      class: 'jp-gpulayer-id',
      title: trans.__('The job’s id; a click copies it'),
    });
    const line = element(
      'div',
      { class: 'jp-gpulayer-head' },
      this._mark,
      element('span', { class: 'jp-gpulayer-title' }, this._name, ' ', this._facts, ' ', id, this._connection),
      buttons,
    );
    this._waysOut = new WaysOut(source, error => this._say(error));
    this._bar.setAttribute('aria-label', trans.__('Progress'));
    this._progress.append(this._bar, this._progressText);
    this.node = element(
      'header',
      { class: 'jp-gpulayer-header' },
      line,
      this._waysOut.node,
      this._progress,
      this._error,
    );
    this._connected = source.connection.onChange(() => this._drawConnection());
    this._drawConnection();
    this._ticks = setInterval(() => this._tick(), TICK_MS);
  }

  update(status: JobStatus): void {
    const phase = phaseOfStatus(status);
    this._status = status;
    // A server whose clock is ahead would show a job that began in the future.
    this._behind = Math.max(this._behind, (status.started_at ?? status.created_at) - this._now());
    if (phase !== this._phase) {
      this._phase = phase;
      this._asked = false;
      this._mark.replaceChildren(stateMark(phase));
      this.node.dataset['phase'] = phase;
      this._error.hidden = true;
    }
    setText(this._name, status.name);
    this._drawFacts();
    this._drawStop();
    this._drawProgress();
    this._waysOut.update(status, this._time);
  }

  dispose(): void {
    clearInterval(this._ticks);
    this._connected.dispose();
  }

  /** By the clock that the job's times are told by. */
  private get _time(): number {
    return this._now() + this._behind;
  }

  private _tick(): void {
    if (this._status !== null && this._status.ended_at === null && !document.hidden) {
      this._drawFacts();
      this._drawStop();
      this._waysOut.update(this._status, this._time);
      this._onTick();
    }
  }

  private _drawFacts(): void {
    const status = this._status;
    if (status === null) {
      return;
    }
    const { trans } = this._source;
    const shape = [shapeWords(status, trans), hostWords(status, trans)].filter(Boolean).join(' ');
    const facts = [stateWords(status, this._time, trans), shape, startWords(status, trans)];
    if (status.spec.retries > 0 && status.attempt > 1) {
      facts.push(trans.__('attempt %1 of at most %2', status.attempt, status.spec.retries + 1));
    }
    setText(this._facts, facts.filter(Boolean).join(' · '));
  }

  private _drawStop(): void {
    const { trans, actions } = this._source;
    const ended = this._status === null || this._status.ended_at !== null;
    const why = ended ? undefined : actions.whyNoCancel;
    setText(this._whyNot, why ?? '');
    this._whyNot.hidden = !why;
    const hadFocus = document.activeElement === this._stop;
    this._stop.hidden = ended || Boolean(why);
    if (hadFocus && this._stop.hidden) {
      leaveFocusAt(this.node);
    }
    const isStopping = this._phase === 'stopping';
    setBusy(this._stop, this._asked);
    setText(this._stop, this._asked ? trans.__('Stopping…') : isStopping ? trans.__('Kill at once') : trans.__('Stop'));
    this._stop.title = isStopping
      ? trans.__('End the ranks without waiting for their grace')
      : trans.__('Cancel the job: its ranks are interrupted, and killed after their grace');
  }

  private _drawProgress(): void {
    const status = this._status;
    const isOver = status?.state === 'succeeded';
    const words = status === null || isOver ? null : progressWords(status, this._source.trans);
    this._progress.hidden = status === null || words === null;
    if (status === null || words === null) {
      return;
    }
    setText(this._progressText, words);
    const share = progressShare(status);
    this._bar.hidden = share === null;
    (this._bar.firstElementChild as HTMLElement).style.width = `${((share ?? 0) * 100).toFixed(1)}%`;
    this._bar.setAttribute('aria-valuemin', '0');
    this._bar.setAttribute('aria-valuemax', '100');
    this._bar.setAttribute('aria-valuenow', String(Math.round((share ?? 0) * 100)));
    this._bar.setAttribute('aria-valuetext', words);
  }

  private _drawConnection(): void {
    const { connection, trans } = this._source;
    this._connection.hidden = connection.state === 'connected';
    setText(
      this._connection,
      connection.state === 'reconnecting'
        ? ` · ${trans.__('reconnecting…')}`
        : connection.state === 'offline'
          ? ` · ${trans.__('offline: this is the last that is known')}`
          : '',
    );
    this._drawStop();
  }

  private async _cancel(event: MouseEvent): Promise<void> {
    if (isRepeated(event)) {
      return; // the second of a double click would kill what the first asked to stop
    }
    const force = this._phase === 'stopping';
    this._asked = true;
    this._error.hidden = true;
    this._drawStop();
    try {
      await this._source.actions.cancel(force);
    } catch (error) {
      this._asked = false;
      this._say(error);
    }
    this._drawStop();
  }

  private _say(error: unknown): void {
    this._error.textContent = errorText(error);
    this._error.hidden = false;
  }
}

/** An error's message and its way out, as one text. */
export function errorText(error: unknown): string {
  const { message, fix } = (error ?? {}) as { message?: string; fix?: string | null };
  return [message ?? String(error), fix].filter(Boolean).join(' ');
}
