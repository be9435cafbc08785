/**
 * What a job is at that has not started or is stopping, and what a person can do about it from here: start workers, let a
 * machine join, kill.
 */
import type { JobStatus } from '../protocol';
import { copyButton } from './copying';
import { button, element, sentence, setBusy } from './elements';
import type { JobSource } from './source';
import { phaseOfStatus, startingWords, stoppingWords } from './job_words';
import type { Phase } from './state_marks';

export class WaysOut {
  readonly node = element('div', { class: 'jp-gpulayer-waits', hidden: true });
  private readonly words = element('div', { class: 'jp-gpulayer-waits-words' });
  private readonly actions = element('div', { class: 'jp-gpulayer-actions' });
  private readonly source: JobSource;
  private readonly onError: (error: unknown) => void;
  private said = '';
  private offered = '';
  private phase: Phase | null = null;
  /** When the job was told to stop; null where that was before it was seen. */
  private stoppingSince: number | null = null;

  constructor(source: JobSource, onError: (error: unknown) => void) {
    this.source = source;
    this.onError = onError;
    this.node.append(this.words, this.actions);
  }

  /** @param now - seconds by the clock that the job's times are told by. */
  update(status: JobStatus, now: number): void {
    const phase = phaseOfStatus(status);
    if (phase !== this.phase) {
      this.stoppingSince = phase === 'stopping' && this.phase !== null ? now : null;
      this.phase = phase;
    }
    const waits = (phase === 'queued' || phase === 'starting') && status.waiting_for !== null;
    const said = waits ? this.waitingWords(status, now) : phase === 'stopping' ? this.stoppingWords(status, now) : '';
    this.node.hidden = !said;
    if (said !== this.said) {
      this.said = said;
      this.words.replaceChildren(sentence(said));
    }
    // The words change with every device that is taken; a join command that somebody copies stays.
    const offered = waits ? `${this.workersOf(status)} ${this.isHelped(status)}` : '';
    if (offered !== this.offered) {
      this.offered = offered;
      this.actions.replaceChildren(...(waits ? this.waysOut(status) : []));
    }
  }

  private waitingWords(status: JobStatus, now: number): string {
    const hint = this.phase === 'starting' ? startingWords(status, now, this.source.trans) : null;
    return [upperFirst(status.waiting_for ?? ''), hint].filter(Boolean).join('. ');
  }

  private stoppingWords(status: JobStatus, now: number): string {
    const { trans, actions } = this.source;
    const since = this.stoppingSince;
    const left = since === null ? null : since + status.spec.grace_seconds - now;
    const words = stoppingWords(status, left, trans);
    if (words === null || (left !== null && left <= 0)) {
      return words ?? '';
    }
    const sooner = actions.whyNoCancel
      ? trans.__('A second interrupt of its cell kills them at once.')
      : trans.__('“Kill at once”, or a second interrupt of its cell, does not wait.');
    return `${words} ${sooner}`;
  }

  private workersOf(status: JobStatus): number {
    return this.source.actions.startLocalWorkers ? (status.waiting?.local_workers ?? 0) : 0;
  }

  private isHelped(status: JobStatus): boolean {
    return Boolean(this.source.actions.joinCommand) && HELPED_BY_WORKERS.includes(status.waiting?.reason ?? '');
  }

  private waysOut(status: JobStatus): Node[] {
    const { trans } = this.source;
    const found: Node[] = [];
    const workers = this.workersOf(status);
    if (workers > 0) {
      const text = trans._n('Start %1 local worker', 'Start %1 local workers', workers);
      const start = button(text, () => void this.startWorkers(start, workers), {
        class: 'jp-gpulayer-button jp-gpulayer-first',
      });
      found.push(start);
    }
    if (this.isHelped(status)) {
      const join = button(trans.__('Add a worker…'), () => void this.showJoin(join), {
        title: trans.__('Shows the command that makes another machine a worker'),
      });
      found.push(join);
    }
    return found;
  }

  private async startWorkers(pressed: HTMLButtonElement, workers: number): Promise<void> {
    const { actions, trans } = this.source;
    setBusy(pressed, true);
    pressed.textContent = trans._n('Starting %1 worker…', 'Starting %1 workers…', workers);
    try {
      await actions.startLocalWorkers?.(workers);
    } catch (error) {
      setBusy(pressed, false);
      pressed.textContent = trans._n('Start %1 local worker', 'Start %1 local workers', workers);
      this.onError(error);
    }
  }

  private async showJoin(pressed: HTMLButtonElement): Promise<void> {
    const { actions, trans } = this.source;
    setBusy(pressed, true);
    try {
      const command = (await actions.joinCommand?.()) ?? '';
      const copy = copyButton(() => command, trans.__('Copy the command'), trans);
      pressed.replaceWith(
        element('span', {}, trans.__('Run this on the machine that is to be a worker:')),
        element('code', { class: 'jp-gpulayer-command', tabindex: 0 }, command),
        copy,
      );
      copy.focus();
    } catch (error) {
      setBusy(pressed, false);
      this.onError(error);
    }
  }
}

const HELPED_BY_WORKERS: readonly string[] = [
  'no_worker',
  'draining',
  'requires',
  'too_small',
  'too_few',
  'busy',
  'apart',
];

function upperFirst(text: string): string {
  return text.slice(0, 1).toUpperCase() + text.slice(1);
}
