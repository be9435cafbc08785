/** What a queued job waits for, and what a person can do about it from here: start workers, or let a machine join. */
import type { JobStatus } from '../protocol';
import { copyButton } from './copying';
import { button, element, sentence } from './elements';
import type { JobSource } from './source';
import { phaseOfStatus } from './job_words';

export class WaysOut {
  readonly node = element('div', { class: 'jp-gpulayer-waits', hidden: true });
  private readonly _words = element('div', { class: 'jp-gpulayer-waits-words' });
  private readonly _actions = element('div', { class: 'jp-gpulayer-actions' });
  private readonly _source: JobSource;
  private readonly _onError: (error: unknown) => void;
  private _drawn = '';

  constructor(source: JobSource, onError: (error: unknown) => void) {
    this._source = source;
    this._onError = onError;
    this.node.append(this._words, this._actions);
  }

  update(status: JobStatus): void {
    const phase = phaseOfStatus(status);
    const waits = (phase === 'queued' || phase === 'starting') && status.waiting_for !== null;
    this.node.hidden = !waits;
    const key = waits ? JSON.stringify([status.waiting_for, status.waiting]) : '';
    if (key === this._drawn) {
      return;
    }
    this._drawn = key;
    this._words.replaceChildren(sentence(waits ? upperFirst(status.waiting_for ?? '') : ''));
    this._actions.replaceChildren(...(waits ? this._waysOut(status) : []));
  }

  private _waysOut(status: JobStatus): Node[] {
    const { actions, trans } = this._source;
    const found: Node[] = [];
    const workers = status.waiting?.local_workers ?? 0;
    if (workers > 0 && actions.startLocalWorkers) {
      const text = trans._n('Start %1 local worker', 'Start %1 local workers', workers);
      const start = button(text, () => void this._startWorkers(start, workers), {
        class: 'jp-gpulayer-button jp-gpulayer-first',
      });
      found.push(start);
    }
    if (actions.joinCommand && HELPED_BY_WORKERS.includes(status.waiting?.reason ?? '')) {
      const join = button(trans.__('Show the join command'), () => void this._showJoin(join), {
        title: trans.__('The command with which another machine joins'),
      });
      found.push(join);
    }
    return found;
  }

  private async _startWorkers(pressed: HTMLButtonElement, workers: number): Promise<void> {
    const { actions, trans } = this._source;
    pressed.disabled = true;
    pressed.textContent = trans._n('Starting %1 worker…', 'Starting %1 workers…', workers);
    try {
      await actions.startLocalWorkers?.(workers);
    } catch (error) {
      pressed.disabled = false;
      pressed.textContent = trans._n('Start %1 local worker', 'Start %1 local workers', workers);
      this._onError(error);
    }
  }

  private async _showJoin(pressed: HTMLButtonElement): Promise<void> {
    const { actions, trans } = this._source;
    pressed.disabled = true;
    try {
      const command = (await actions.joinCommand?.()) ?? '';
      const copy = copyButton(() => command, trans.__('Copy the join command'), trans);
      pressed.replaceWith(element('code', { class: 'jp-gpulayer-command', tabindex: 0 }, command), copy);
      copy.focus();
    } catch (error) {
      pressed.disabled = false;
      this._onError(error);
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
