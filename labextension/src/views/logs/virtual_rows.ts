/**
 * A list of which only the rows in sight are in the page. All rows are of one height; places are whole numbers that stay,
 * as `ShownLines` gives them, and each stands at a position, which may change. Knows no logs.
 */
import { element } from '../elements';

/** Rows beyond what is in sight, for scrolling that is faster than drawing. */
const BEYOND = 20;
const MOST_ROWS = 250;
/** A bar for scrolling sideways needs room of its own. */
const SCROLL_BAR = '18px';
/** Where nothing is laid out, as in a test. */
const SUPPOSED = { row: 18, height: 360 };

export interface RowSource {
  readonly first: number;
  readonly end: number;
  positionOf(place: number): number;
  placeAt(position: number): number;
  /** A text that differs where the row has to be drawn again. */
  stateOf(place: number): string;
  draw(place: number, row: HTMLElement): void;
}

export class VirtualRows {
  readonly node: HTMLElement;
  private readonly space = element('div', { class: 'jp-gpulayer-logs-space' });
  private readonly drawn = new Map<number, { row: HTMLElement; state: string; position: number }>();
  private rowHeight = 0;
  private drawnFirst = 0;
  /** What stood first in sight, and where: it stays there, whatever comes or goes above it. */
  private anchor: { place: number; position: number } | null = null;
  private wasLaidOut = false;
  /** Rows that stay in the page, since a selection begins or ends in them. */
  private pinned: readonly number[] = [];

  constructor(
    private rows: RowSource,
    attributes: Record<string, string | number>,
  ) {
    this.node = element('div', { class: 'jp-gpulayer-logs-scroll', tabindex: 0, ...attributes }, this.space);
  }

  show(rows: RowSource): void {
    this.rows = rows;
    this.drawnFirst = rows.first;
    this.anchor = null;
    this.clear();
  }

  /** Draw all rows again. */
  clear(): void {
    this.drawn.forEach(({ row }) => row.remove());
    this.drawn.clear();
    this.rowHeight = 0;
  }

  get height(): number {
    if (this.rowHeight === 0) {
      const probe = element('div', { class: 'jp-gpulayer-logs-row' }, 'x');
      this.space.append(probe);
      this.rowHeight = probe.offsetHeight || SUPPOSED.row;
      probe.remove();
    }
    return this.rowHeight;
  }

  /** The layout may have changed. */
  measure(): void {
    const before = this.rowHeight;
    this.rowHeight = 0;
    if (before !== 0 && before !== this.height) {
      this.clear();
    }
  }

  /** It is off the page or in a part of it that is not shown: it has no place to scroll to, and its own would be lost. */
  get isAway(): boolean {
    const isLaidOut = this.node.clientHeight > 0;
    this.wasLaidOut ||= isLaidOut;
    return this.wasLaidOut && !isLaidOut;
  }

  private get viewHeight(): number {
    return this.node.clientHeight || SUPPOSED.height;
  }

  /** The first place in sight. */
  get top(): number {
    return this.topAt(this.node.scrollTop);
  }

  topAt(scrollTop: number): number {
    return this.rows.placeAt(this.drawnFirst + Math.floor(scrollTop / this.height));
  }

  get bottomScroll(): number {
    return Math.max(0, (this.rows.end - this.rows.first) * this.height - this.viewHeight);
  }

  /** Bring a place into sight, where it is not. */
  reveal(place: number): void {
    const top = (this.rows.positionOf(place) - this.rows.first) * this.height;
    if (top < this.node.scrollTop || top + this.height > this.node.scrollTop + this.viewHeight) {
      this.draw(Math.max(0, top - this.viewHeight / 3));
    }
  }

  positionOf(place: number): number {
    return this.rows.positionOf(place);
  }

  placeAt(position: number): number {
    return this.rows.placeAt(position);
  }

  pin(places: readonly number[]): void {
    this.pinned = places;
  }

  /** The place of the row that a node is in. */
  placeOf(node: Node | null): number | null {
    const row = (node instanceof Element ? node : node?.parentElement)?.closest<HTMLElement>('.jp-gpulayer-logs-row');
    return row && this.node.contains(row) ? Number(row.dataset['place']) : null;
  }

  /** Be as high as all rows are. */
  takeRoom(): void {
    const total = `${(this.rows.end - this.rows.first) * this.height}px`;
    if (this.space.style.height !== total) {
      this.space.style.height = total;
      // Few rows take little room; the style sheet says how much many take.
      this.node.style.setProperty('--gpulayer-logs-height', `calc(${total} + ${SCROLL_BAR})`);
    }
  }

  /**
   * Draw what is in sight.
   *
   * @param scrollTo - where to scroll, or null: what one reads stays where it is, whatever came or went above.
   * @returns where it is scrolled to. Asking for that later would have the page laid out once more.
   */
  draw(scrollTo: number | null = null): number {
    const { first, end } = this.rows;
    const { height, viewHeight } = this;
    const moved = this.anchor ? this.rows.positionOf(this.anchor.place) - this.anchor.position : 0;
    const shift = (this.drawnFirst - first + moved) * height;
    this.takeRoom();
    const target = scrollTo ?? (shift !== 0 ? Math.max(0, this.node.scrollTop + shift) : null);
    if (target !== null && target !== this.node.scrollTop) {
      this.node.scrollTop = target;
    }
    const isMoved = this.drawnFirst !== first;
    this.drawnFirst = first;
    const { scrollTop } = this.node;
    const from = Math.max(first, first + Math.floor(scrollTop / height) - BEYOND);
    const to = Math.min(end, from + Math.min(MOST_ROWS, Math.ceil(viewHeight / height) + 2 * BEYOND));
    const wanted = new Map<number, number>();
    this.pinned
      .filter(place => place >= first && place < end)
      .forEach(place => wanted.set(place, this.rows.positionOf(place)));
    for (let position = from; position < to; position++) {
      wanted.set(this.rows.placeAt(position), position);
    }
    for (const [place, { row }] of this.drawn) {
      if (!wanted.has(place)) {
        row.remove();
        this.drawn.delete(place);
      }
    }
    let after: HTMLElement | null = null;
    for (const [place, position] of [...wanted].sort(([, one], [, other]) => one - other)) {
      after = this.drawRow(place, position, after, isMoved);
    }
    this.anchor = this.anchorAt(first + Math.floor(scrollTop / height));
    return scrollTop;
  }

  /** A line that is drawn last leaves its position when it ends, so it holds nothing in its place. */
  private anchorAt(position: number): { place: number; position: number } | null {
    const place = this.rows.placeAt(position);
    return place < position ? null : { place, position };
  }

  private drawRow(place: number, position: number, after: HTMLElement | null, isMoved: boolean): HTMLElement {
    const state = this.rows.stateOf(place);
    let known = this.drawn.get(place);
    if (known === undefined) {
      known = { row: element('div', { class: 'jp-gpulayer-logs-row', 'data-place': place }), state: '', position };
      this.drawn.set(place, known);
      this.space.insertBefore(known.row, after ? after.nextSibling : this.space.firstChild);
      this.place(known.row, position);
      this.rows.draw(place, known.row);
    } else if (known.state !== state) {
      this.rows.draw(place, known.row);
    }
    if (isMoved || known.position !== position) {
      this.place(known.row, position);
    }
    if (known.row.previousSibling !== after) {
      this.space.insertBefore(known.row, after ? after.nextSibling : this.space.firstChild);
    }
    known.position = position;
    known.state = state;
    return known.row;
  }

  private place(row: HTMLElement, position: number): void {
    row.style.top = `${(position - this.rows.first) * this.height}px`;
  }
}
