/** Finds a text in the lines that are shown, in slices, and goes on as lines come and change. Knows no DOM. */
import { placeIn } from './queue';
import { SlicedWork, type Scheduler } from './scheduler';
import type { ShownLines } from './shown_lines';

/** Lines that are searched in one step: well below a millisecond. */
const STEP = 500;

// eslint-disable-next-line no-control-regex -- what the terminal keeps of styles
const STYLES = /\x1b\[[0-9;]*m/g;

/** A line without its styles. */
export function plainText(text: string): string {
  return text.includes('\x1b') ? text.replace(STYLES, '') : text;
}

/** Matches the text itself, whatever characters it has. */
export function patternOf(query: string, isCaseSensitive: boolean): RegExp | null {
  return query === '' ? null : new RegExp(query.replace(/[\\^$.*+?()[\]{}|]/g, '\\$&'), isCaseSensitive ? 'g' : 'gi');
}

export class Search {
  pattern: RegExp | null = null;

  private from = 0; // what lies between these two is searched
  private to = 0;
  // The places of the lines that match, each list growing at its end: those that came since the search began, and before
  // them, the last first, those that were there.
  private begun = 0;
  private newer: number[] = [];
  private older: number[] = [];
  private readonly work: SlicedWork;

  constructor(
    scheduler: Scheduler,
    private lines: ShownLines,
    private readonly onChange: () => void,
  ) {
    this.work = new SlicedWork(
      scheduler,
      () => this.step(),
      () => this.onChange(),
    );
  }

  begin(lines: ShownLines, pattern: RegExp | null): void {
    this.lines = lines;
    this.pattern = pattern;
    this.newer = [];
    this.older = [];
    this.begun = this.from = this.to = lines.end;
    this.goOn();
  }

  /** How many lines match, as far as they were searched. */
  get count(): number {
    return this.older.length + this.newer.length;
  }

  /** The place of a match, counted from the first. */
  at(index: number): number | undefined {
    const { older, newer } = this;
    return index < older.length ? older[older.length - 1 - index] : newer[index - older.length];
  }

  /** Which of the matches a place is; -1 where it is none. */
  indexOf(place: number): number {
    const index = this.indexAt(place);
    return this.at(index) === place ? index : -1;
  }

  /** Whether everything that is shown was searched. */
  get isDone(): boolean {
    return this.pattern === null || (this.from <= this.lines.first && this.to >= this.lines.end);
  }

  /** Lines came, or went. */
  goOn(): void {
    if (this.pattern !== null) {
      const gone = this.indexAt(this.lines.first);
      const ofOlder = Math.min(gone, this.older.length);
      this.older.length -= ofOlder;
      this.newer.splice(0, gone - ofOlder);
      this.work.wake();
    }
  }

  /** A line that was there has another text. */
  changed(place: number): void {
    if (this.pattern === null || place < this.from || place >= this.to) {
      return;
    }
    const index = this.indexAt(place);
    const was = this.at(index) === place;
    if (was === this.isMatch(place)) {
      return;
    }
    const { older, newer } = this;
    const [list, at] =
      place < this.begun ? [older, older.length - index - (was ? 1 : 0)] : [newer, index - older.length];
    list.splice(at, was ? 1 : 0, ...(was ? [] : [place]));
  }

  /** The index of the next match at or behind a place, or before it; around the end. Null where there is none. */
  next(place: number, backwards: boolean): number | null {
    if (this.count === 0) {
      return null;
    }
    const index = this.indexAt(place) - (backwards ? 1 : 0);
    return (index + this.count) % this.count;
  }

  dispose(): void {
    this.work.dispose();
  }

  private indexAt(place: number): number {
    return placeIn(index => this.at(index) ?? 0, 0, this.count, place);
  }

  /** The newest first: that is what one looks at. */
  private step(): boolean {
    if (this.pattern === null) {
      return false;
    }
    const { first, end } = this.lines;
    if (this.to < end) {
      const to = Math.min(end, this.to + STEP);
      for (let place = this.to; place < to; place++) {
        if (this.isMatch(place)) {
          this.newer.push(place);
        }
      }
      this.to = to;
    } else if (this.from > first) {
      const from = Math.max(first, this.from - STEP);
      for (let place = this.from - 1; place >= from; place--) {
        if (this.isMatch(place)) {
          this.older.push(place);
        }
      }
      this.from = from;
    }
    return !this.isDone;
  }

  private isMatch(place: number): boolean {
    const line = this.lines.line(place);
    if (this.pattern === null || line.kind !== 'line') {
      return false;
    }
    // Unlike `test` it leaves the pattern as it is for whoever marks what it matches.
    return plainText(line.text).search(this.pattern) >= 0;
  }
}
