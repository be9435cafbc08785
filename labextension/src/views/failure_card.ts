/**
 * Why a job failed: the guilty rank, what it raised and where, and what became of the others; the texts that are long
 * lie folded below. Drawn from the record's fields, in the words of gpulayer/client/failures.py.
 */
import type { Failure, Frame, JobStatus } from '../protocol';
import { button, element, type Child } from './elements';
import { signalName } from './exit_words';
import { type CellPlaces, inFunction, otherRanks, ownFrame, sourcePath } from './frame_places';
import { nodeCount } from './job_words';
import type { Translator } from './source';
import { stackGroups } from './stacks';
import { value } from './units';

/** Shows a line of the job's source. */
export type ShowPlace = (path: string, line: number) => void;

const MESSAGE_LINES = 6;

export class FailureCard {
  readonly node: HTMLElement;
  private readonly trans: Translator;
  private readonly showPlace: ShowPlace | null;
  private drawn = '';
  private cells: CellPlaces | null = null;
  private status: JobStatus | null = null;

  constructor(trans: Translator, showPlace: ShowPlace | null) {
    this.trans = trans;
    this.showPlace = showPlace;
    this.node = element('section', { class: 'jp-gpulayer-failure', 'aria-label': trans.__('Failure'), hidden: true });
  }

  /** Tell places as lines of the notebook's cells from here on. */
  setCells(cells: CellPlaces): void {
    this.cells = cells;
    this.drawn = '';
    if (this.status !== null) {
      this.update(this.status);
    }
  }

  update(status: JobStatus): void {
    this.status = status;
    const failure = status.state === 'failed' ? status.failure : null;
    const key = failure === null ? '' : `${status.attempt} ${JSON.stringify(failure)}`;
    this.node.hidden = failure === null;
    if (key !== this.drawn) {
      this.drawn = key;
      this.node.replaceChildren(...(failure === null ? [] : this.parts(status, failure)));
    }
  }

  private parts(status: JobStatus, failure: Failure): Node[] {
    const message = failure.error?.message.trim().split('\n') ?? [];
    const rest = message.slice(1);
    return [
      element('div', { class: 'jp-gpulayer-failure-title' }, failureTitle(status, this.trans)),
      ...(rest.length ? [element('pre', { class: 'jp-gpulayer-failure-message' }, cut(rest))] : []),
      ...this.place(failure),
      ...reasons(failure).map(reason => element('p', { class: 'jp-gpulayer-failure-reason' }, reason)),
      ...this.others(status),
      ...this.folded(status, failure),
    ];
  }

  /** Where it was raised: the user's own innermost line, and what stands there. */
  private place(failure: Failure): Node[] {
    const own = ownFrame(failure.error?.frames ?? []);
    if (own === null) {
      return [];
    }
    const code = own.text === null ? null : element('code', { class: 'jp-gpulayer-failure-code' }, own.text);
    return [element('div', { class: 'jp-gpulayer-failure-place' }, this.placeName(own), code)];
  }

  private placeName(frame: Frame): Child {
    const text = inFunction(frame, this.trans, this.cells);
    const path = sourcePath(frame.file);
    const show = this.showPlace;
    if (path === null || show === null) {
      return element('span', { title: frame.file }, text);
    }
    return button(text, () => show(path, frame.line), {
      class: 'jp-gpulayer-link',
      title: this.trans.__('Show this line in the source'),
    });
  }

  private others(status: JobStatus): Node[] {
    return otherRanks(status, this.trans, this.cells).map(line =>
      element('p', { class: 'jp-gpulayer-failure-others' }, line),
    );
  }

  private folded(status: JobStatus, failure: Failure): Node[] {
    const trans = this.trans;
    const who = failure.rank === null ? trans.__('the launcher') : trans.__('rank %1', failure.rank);
    const found: Node[] = [];
    if (failure.error !== null) {
      found.push(fold(trans.__('Traceback of %1', who), [pre(failure.error.traceback)]));
    } else if (failure.last_lines.some(line => line.trim())) {
      found.push(fold(trans.__('The last lines of %1', who), [pre(failure.last_lines.join('\n'))], true));
    }
    const groups = stackGroups(status, trans);
    if (groups.length) {
      const parts = groups.flatMap(group => [
        element('div', { class: 'jp-gpulayer-stack-of' }, group.who),
        pre(group.text),
      ]);
      found.push(fold(trans.__('What the ranks were doing: their stacks'), parts));
    }
    return found;
  }
}

/** One sentence: who failed first, where it ran, and how. */
export function failureTitle(status: JobStatus, trans: Translator): string {
  const failure = status.failure;
  if (failure === null) {
    return trans.__('The job failed.');
  }
  const who = whoFailed(status, failure, trans);
  if (failure.reason === 'timeout') {
    const seconds = status.spec.timeout_seconds;
    const said = seconds ? trans.__('Ran out of time (%1 s)', value(seconds)) : trans.__('Ran out of time');
    return who ? `${said}: ${who}` : said;
  }
  if (failure.error !== null) {
    const line = failure.error.message.trim().split('\n')[0];
    const raised = trans.__('%1 raised %2', upperFirst(who || trans.__('its process')), failure.error.type);
    return line ? `${raised}: ${line}` : raised;
  }
  if (failure.reason === 'rank' || failure.exit_code !== null || failure.signal !== null) {
    return `${upperFirst(who || trans.__('its process'))} ${exitWords(failure, trans)}`;
  }
  const message = upperFirst(failure.message.replace(/\.$/, ''));
  return who ? `${message} (${who})` : message;
}

/** `rank 1 on gpu-a (cuda:1)`. */
function whoFailed(status: JobStatus, failure: Failure, trans: Translator): string {
  const rank =
    failure.rank !== null
      ? trans.__('rank %1', failure.rank)
      : failure.reason === 'launcher'
        ? trans.__('the launcher')
        : '';
  const facts = [
    failure.node !== null && nodeCount(status) > 1 ? trans.__('node %1', failure.node) : null,
    failure.device,
  ].filter(Boolean);
  const where = failure.worker === null ? '' : trans.__('on %1', failure.worker);
  return [rank, where, facts.length ? `(${facts.join(', ')})` : ''].filter(Boolean).join(' ');
}

function exitWords(failure: Failure, trans: Translator): string {
  if (failure.signal !== null) {
    return trans.__('was ended by %1 (signal %2)', signalName(failure.signal), failure.signal);
  }
  return failure.exit_code !== null ? trans.__('exited with code %1', failure.exit_code) : trans.__('failed');
}

/** Who ended it and why, where the title does not have it. What a rank printed last is no reason. */
function reasons(failure: Failure): string[] {
  const exited = failure.exit_code !== null || failure.signal !== null;
  const isSaid =
    failure.error !== null || !exited || (failure.signal === null && ['rank', 'timeout'].includes(failure.reason));
  return isSaid || !failure.message.trim() ? [] : [failure.message.trim()];
}

function fold(title: string, parts: Node[], isOpen = false): HTMLElement {
  return element('details', { class: 'jp-gpulayer-fold', open: isOpen }, element('summary', {}, title), ...parts);
}

function pre(text: string): HTMLElement {
  // Long texts scroll inside their own box, by keyboard too.
  return element('pre', { class: 'jp-gpulayer-text', tabindex: 0 }, text);
}

function cut(lines: readonly string[]): string {
  const shown = lines.slice(0, MESSAGE_LINES);
  return (lines.length > shown.length ? [...shown, '…'] : shown).join('\n');
}

function upperFirst(text: string): string {
  return text.slice(0, 1).toUpperCase() + text.slice(1);
}
