/** Which rank's output is shown: a button each for few, for many those that stand out and a list. Knows no logs. */
import { button, element } from '../elements';
import type { RankMark } from '../rank_rows';
import type { Translator } from '../source';

const MOST_BUTTONS = 16;
const MOST_MARKED = 6;

export class RankSwitch {
  readonly node: HTMLElement;
  private readonly buttons = new Map<number | null, HTMLButtonElement>();
  private readonly list: HTMLSelectElement;
  private ranks: readonly RankMark[] = [];
  private current: number | null = null;
  private drawn = '';

  constructor(
    private readonly trans: Translator,
    private readonly choose: (rank: number | null) => void,
  ) {
    this.node = element('div', { class: 'jp-gpulayer-logs-ranks', role: 'group', 'aria-label': trans.__('Rank') });
    this.node.addEventListener('keydown', event => this.move(event));
    this.list = element('select', { class: 'jp-gpulayer-logs-select', 'aria-label': trans.__('Rank') });
    this.list.addEventListener('change', () => this.choose(this.list.value === '' ? null : Number(this.list.value)));
    this.node.hidden = true;
  }

  setRanks(ranks: readonly RankMark[]): void {
    const drawn = JSON.stringify(ranks);
    if (drawn !== this.drawn) {
      this.drawn = drawn;
      this.ranks = [...ranks].sort((one, other) => one.rank - other.rank);
      this.draw();
    }
  }

  select(rank: number | null): void {
    this.current = rank;
    this.mark();
  }

  private draw(): void {
    const { ranks, trans } = this;
    const focused = [...this.buttons].find(([, node]) => node === document.activeElement)?.[0];
    const isMany = ranks.length > MOST_BUTTONS;
    const shown = isMany
      ? ranks
          .filter(isOdd)
          .sort((one, other) => Number(other.first) - Number(one.first))
          .slice(0, MOST_MARKED)
      : ranks;
    this.buttons.clear();
    this.buttons.set(
      null,
      button(trans.__('all'), () => this.choose(null), { 'aria-label': trans.__('All ranks') }),
    );
    for (const mark of shown) {
      const text = this.textOf(mark);
      const made = button(text, () => this.choose(mark.rank), { 'aria-label': trans.__('Rank %1', text) });
      made.classList.toggle('jp-mod-failed', isOdd(mark));
      this.buttons.set(mark.rank, made);
    }
    this.node.replaceChildren(...this.buttons.values());
    if (isMany) {
      const options = ranks.map(mark =>
        element('option', { value: mark.rank }, trans.__('rank %1', this.textOf(mark))),
      );
      this.list.replaceChildren(element('option', { value: '' }, trans.__('all ranks')), ...options);
      this.node.append(this.list);
    }
    this.node.hidden = ranks.length < 2;
    this.mark();
    if (focused !== undefined) {
      this.buttons.get(focused)?.focus();
    }
  }

  private textOf(mark: RankMark): string {
    if (mark.first) {
      return this.trans.__('%1 failed first', mark.rank);
    }
    return isOdd(mark) ? this.trans.__('%1 failed', mark.rank) : String(mark.rank);
  }

  private mark(): void {
    const isButton = this.buttons.has(this.current);
    for (const [rank, node] of this.buttons) {
      node.setAttribute('aria-pressed', String(rank === this.current));
      // One of them is on the way of the Tab key, the others of the arrows.
      node.tabIndex = rank === (isButton ? this.current : null) ? 0 : -1;
    }
    const value = this.current === null ? '' : String(this.current);
    if (this.list.value !== value) {
      this.list.value = value;
    }
  }

  private move(event: KeyboardEvent): void {
    if (event.target === this.list) {
      return;
    }
    const order = [...this.buttons.keys()];
    const at = order.findIndex(rank => this.buttons.get(rank) === event.target);
    const to = { ArrowLeft: at - 1, ArrowRight: at + 1, Home: 0, End: order.length - 1 }[event.key];
    const rank = to === undefined ? undefined : order[(to + order.length) % order.length];
    if (rank !== undefined) {
      event.preventDefault();
      event.stopPropagation();
      this.choose(rank);
      this.buttons.get(rank)?.focus();
    }
  }
}

function isOdd(mark: RankMark): boolean {
  return mark.first || mark.phase === 'failed';
}
