/** Finds a text in the lines that are shown, in slices, and goes on as lines come and change. Knows no DOM. */
import { placeIn } from './lines';
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
  /** The places of the lines that match, in order. */
  matches: number[] = [];

  private from = 0; // what lies between these two is searched
  private to = 0;
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
    this.matches = [];
    this.from = this.to = lines.end;
    this.goOn();
  }

  /** Whether everything that is shown was searched. */
  get isDone(): boolean {
    return this.pattern === null || (this.from <= this.lines.first && this.to >= this.lines.end);
  }

  /** Lines came, or went. */
  goOn(): void {
    if (this.pattern !== null) {
      const gone = this.placeOf(this.lines.first);
      if (gone > 0) {
        this.matches.splice(0, gone);
      }
      this.work.wake();
    }
  }

  /** A line that was there has another text. */
  changed(place: number): void {
    if (this.pattern === null || place < this.from || place >= this.to) {
      return;
    }
    const at = this.placeOf(place);
    const was = this.matches[at] === place;
    const is = this.isMatch(place);
    if (was !== is) {
      this.matches.splice(at, was ? 1 : 0, ...(is ? [place] : []));
    }
  }

  /** The index of the next match at or behind a place, or before it; around the end. Null where there is none. */
  next(place: number, backwards: boolean): number | null {
    if (this.matches.length === 0) {
      return null;
    }
    const at = this.placeOf(place) - (backwards ? 1 : 0);
    return (at + this.matches.length) % this.matches.length;
  }

  dispose(): void {
    this.work.dispose();
  }

  private placeOf(place: number): number {
    return placeIn(at => this.matches[at] ?? 0, 0, this.matches.length, place);
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
          this.matches.push(place);
        }
      }
      this.to = to;
    } else if (this.from > first) {
      const from = Math.max(first, this.from - STEP);
      const found: number[] = [];
      for (let place = from; place < this.from; place++) {
        if (this.isMatch(place)) {
          found.push(place);
        }
      }
      if (found.length > 0) {
        this.matches = found.concat(this.matches);
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
    this.pattern.lastIndex = 0;
    return this.pattern.test(plainText(line.text));
  }
}
