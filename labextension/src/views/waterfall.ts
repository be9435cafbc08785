/** The start-up of a rank, step by step, drawn from the marks in the job's record. */
import type { JobStatus } from '../protocol';
import { element, uniqueId } from './elements';
import { outcomesOf } from './frame_places';
import type { Translator } from './source';
import { spansOf, START_UP_MARKS, type Span } from './spans';
import { duration } from './units';

export class Waterfall {
  readonly node = element('div', { class: 'jp-gpulayer-waterfall' });
  private readonly trans: Translator;
  private readonly now: () => number;
  private readonly title = element('span', { class: 'jp-gpulayer-waterfall-title' });
  private readonly select: HTMLSelectElement;
  private readonly picker: HTMLElement;
  private readonly reason = element('p', { class: 'jp-gpulayer-note', hidden: true });
  private readonly rows = element('div', { class: 'jp-gpulayer-spans', role: 'table' });
  private status: JobStatus | null = null;
  /** What a person chose; the rank that is shown may be another, where that one is not there. */
  private chosen: number | null = null;
  private rank: number | null = null;

  constructor(trans: Translator, now: () => number) {
    this.trans = trans;
    this.now = now;
    const id = uniqueId('rank');
    this.select = element('select', { id, class: 'jp-gpulayer-select' });
    this.select.addEventListener('change', () => {
      this.chosen = this.rank = Number(this.select.value);
      this.draw();
    });
    this.picker = element('span', {}, element('label', { for: id }, trans.__('Rank')), ' ', this.select);
    this.rows.setAttribute('aria-label', trans.__('Steps of the start-up'));
    this.node.append(
      element('div', { class: 'jp-gpulayer-waterfall-head' }, this.title, this.picker),
      this.reason,
      this.rows,
    );
  }

  update(status: JobStatus): void {
    const before = this.status;
    this.status = status;
    const ranks = outcomesOf(status).filter(rank => Object.keys(rank.marks).length);
    this.picker.hidden = ranks.length < 2;
    if (before === null || outcomesOf(before).length !== outcomesOf(status).length) {
      this.select.replaceChildren(...ranks.map(rank => element('option', { value: rank.rank }, String(rank.rank))));
    }
    const known = ranks.map(rank => rank.rank);
    const wanted = [this.chosen, status.failure?.rank, known[0]];
    this.rank = wanted.find(rank => rank !== null && rank !== undefined && known.includes(rank)) ?? null;
    if (this.rank !== null) {
      this.select.value = String(this.rank);
    }
    this.draw();
  }

  private draw(): void {
    const status = this.status;
    if (status === null) {
      return;
    }
    const spans = spansOf(status, status.ended_at === null ? this.now() : null);
    const shown = this.shown(spans);
    const startUp = shown.filter(isStartUp);
    // Work that takes hours must not shrink its start to nothing: the scale ends with the start-up.
    const scale = Math.max(...startUp.map(span => span.end), 1e-6);
    const outcome = outcomesOf(status).find(rank => rank.rank === this.rank) ?? null;
    const first = shown.find(span => span.mark === 'first_step') ?? shown.find(span => span.mark === 'entered') ?? null;
    const parts = [
      this.rank === null ? this.trans.__('Start-up') : this.trans.__('Start-up of rank %1', this.rank),
      first && firstWords(first, this.trans),
      outcome && (outcome.launcher ?? outcome.start),
    ];
    this.title.textContent = parts.filter(Boolean).join(' · ');
    this.reason.hidden = !outcome?.cold_reason;
    this.reason.textContent = outcome?.cold_reason ? this.trans.__('Not started warm: %1', outcome.cold_reason) : '';
    this.rows.replaceChildren(...shown.map(span => this.row(span, scale)));
  }

  /** Up to the placement the job's own steps, then the rank's; without marks the job's own alone. */
  private shown(spans: readonly Span[]): Span[] {
    const ofRank = spans.filter(span => span.rank !== null && span.rank === this.rank);
    const ofJob = spans.filter(span => span.rank === null);
    return ofRank.length ? [...ofJob.filter(span => span.step.endsWith('queued')), ...ofRank] : ofJob;
  }

  private row(span: Span, scale: number): HTMLElement {
    const isBeyond = span.start >= scale && !isStartUp(span);
    const [from, to] = [share(span.start, scale), share(span.end, scale)];
    const bar = element('span', {
      class: isBeyond ? 'jp-gpulayer-beyond' : `jp-gpulayer-span jp-gpulayer-span-${kindOf(span)}`,
    });
    if (!isBeyond) {
      bar.style.left = `${Math.min(from, 99)}%`;
      bar.style.width = `${Math.max(1, to - from)}%`;
    }
    const time = duration(span.end - span.start);
    return element(
      'div',
      { class: 'jp-gpulayer-span-row', role: 'row' },
      element('span', { role: 'rowheader', class: 'jp-gpulayer-span-name' }, stepWords(span.step, this.trans)),
      element('span', { class: 'jp-gpulayer-track', 'aria-hidden': 'true' }, bar),
      element(
        'span',
        { role: 'cell', class: 'jp-gpulayer-span-time' },
        span.soFar ? this.trans.__('%1 so far', time) : time,
      ),
    );
  }
}

function isStartUp(span: Span): boolean {
  return span.mark === null ? span.step !== 'running' && span.step !== 'finish' : START_UP_MARKS.includes(span.mark);
}

function kindOf(span: Span): string {
  if (span.mark === null) {
    return 'job';
  }
  return ['met', 'imported'].includes(span.mark) ? 'meeting' : span.mark === 'first_step' ? 'work' : 'start';
}

function share(moment: number, scale: number): number {
  return Math.min(100, Math.max(0, (moment / scale) * 100));
}

function firstWords(span: Span, trans: Translator): string {
  const time = duration(span.end);
  return span.mark === 'first_step'
    ? trans.__('%1 to the first step', time)
    : trans.__('%1 to the first line of the script', time);
}

function stepWords(step: string, trans: Translator): string {
  return step
    .split(' + ')
    .map(part => trans.__(part))
    .join(' + ');
}
