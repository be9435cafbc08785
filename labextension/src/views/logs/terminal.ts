/**
 * What a terminal shows of a stream of text: the lines that are final, and those that may still change. The same as
 * `gpulayer/terminal_text.py`; both are held to `tests/support/terminal_cases.json`, and ADR-0040 has the rules.
 */
import { FARTHEST_COLUMN, Screen } from './screen';
import { Style, numberOf } from './style';

/* eslint-disable no-control-regex -- control characters are what this reads */
const CONTROL = /[\x00-\x09\x0b-\x1f\x7f-\x9f]/;
const RUN = /[^\x00-\x1f\x7f-\x9f]+/y;
const CSI = /\x1b\[([0-?]{0,256})[ -/]{0,16}([@-~])?/y; // bounded: a longer one is none
const ESCAPE = /\x1b[ -/]{0,16}([0-~])?/y;
const STRING_END = /[\x07\n\x18\x1a\x1b\x9c]/g;
/* eslint-enable no-control-regex */

/** One stream of text as a terminal of unlimited width shows it. With styles, lines hold SGR sequences that end in the line where they begin. */
export class Terminal {
  private screen = new Screen();
  private readonly style = new Style();
  private pending = ''; // a sequence whose end has not come
  private inString = false;

  constructor(private readonly keepStyles = true) {}

  /** Take text in, cut anywhere; returns the lines that became final. */
  feed(text: string): string[] {
    this.screen.changedFrom = this.screen.row;
    if (this.pending !== '' || this.inString || CONTROL.test(text) || !this.screen.appendPlain(text)) {
      this.interpret(this.pending + text);
    }
    return this.screen.takeFinal();
  }

  /** The first of the open rows that the last `feed` may have changed; what is before it stands as it stood. */
  get changedFrom(): number {
    return this.screen.changedFrom;
  }

  /** The lines that may still change, the last of the stream: at most `TAIL_ROWS`. */
  openLines(): string[] {
    return this.screen.openLines();
  }

  /** The first of the open lines that is not finished, as a bar is until it ends. A view's own: what a line is does not depend on it. */
  unfinishedFrom(): number {
    return this.screen.unfinishedFrom();
  }

  /** Nothing more comes, or another process's output does: the open lines are final, and styles are over. */
  finish(): string[] {
    const lines = this.openLines();
    this.screen = new Screen();
    this.style.clear();
    this.pending = '';
    this.inString = false;
    return lines;
  }

  /** Whether what comes next begins a line. */
  get atLineStart(): boolean {
    return this.screen.isAtEnd && this.pending === '' && !this.inString;
  }

  // ---- everything else

  private interpret(text: string): void {
    this.pending = '';
    let position = 0;
    while (position < text.length) {
      if (this.inString) {
        position = this.skipString(text, position);
        continue;
      }
      const run = matchAt(RUN, text, position);
      if (run) {
        this.screen.put(run[0]);
        position += run[0].length;
        continue;
      }
      const character = text[position];
      if (character === '\x1b') {
        const taken = this.escape(text, position);
        if (taken === 0) {
          this.pending = text.slice(position);
          return;
        }
        position += taken;
        continue;
      }
      position++;
      if (character === '\n') {
        this.screen.column = 0;
        this.screen.lineFeed();
      } else if (character === '\r') {
        this.screen.column = 0;
      } else if (character === '\b') {
        this.screen.column = Math.max(0, this.screen.column - 1);
      } else if (character === '\t') {
        this.screen.column += 8 - (this.screen.column % 8);
      } else if (character === '\v' || character === '\f') {
        this.screen.lineFeed();
      }
    }
  }

  private skipString(text: string, position: number): number {
    // A newline ends it too: a title that a crash cut short must not swallow what comes after.
    STRING_END.lastIndex = position;
    const found = STRING_END.exec(text);
    if (!found) {
      return text.length;
    }
    this.inString = false;
    return found[0] === '\n' || found[0] === '\x1b' ? found.index : found.index + 1;
  }

  /** The length of the sequence that begins here; 0 where its end has not come. */
  private escape(text: string, position: number): number {
    const following = text[position + 1];
    if (following !== undefined && ']PX^_'.includes(following)) {
      this.inString = true;
      return 2;
    }
    const isControl = following === '[';
    const found = matchAt(isControl ? CSI : ESCAPE, text, position);
    const length = found?.[0].length ?? 1;
    const final = isControl ? found?.[2] : found?.[1];
    if (final === undefined) {
      return position + length === text.length ? 0 : length;
    }
    if (isControl) {
      this.control(found?.[1] ?? '', final);
    } else if (length === 2) {
      this.shortEscape(final);
    }
    return length;
  }

  private shortEscape(final: string): void {
    if (final === '7') {
      this.screen.save();
    } else if (final === '8') {
      this.screen.restore();
    } else if (final === 'M') {
      this.screen.toRow(this.screen.row - 1);
    } else if (final === 'D') {
      this.screen.lineFeed();
    } else if (final === 'E') {
      this.screen.column = 0;
      this.screen.lineFeed();
    } else if (final === 'c') {
      this.style.clear();
      this.screen.mark = '';
    }
  }

  private control(parameters: string, final: string): void {
    if (/^[<-?]/.test(parameters)) {
      return;
    }
    if (final === 'm') {
      if (this.keepStyles) {
        this.style.apply(parameters);
        this.screen.mark = this.style.sgr();
      }
      return;
    }
    const numbers = parameters.split(';').map(numberOf);
    const first = numbers[0] ?? 0;
    const count = Math.max(1, first);
    switch (final) {
      case 'A':
        return this.screen.toRow(this.screen.row - count);
      case 'B':
      case 'e':
        return this.screen.toRow(this.screen.row + count);
      case 'C':
      case 'a':
        return this.screen.toColumn(this.screen.column + count);
      case 'D':
        this.screen.column = Math.max(0, this.screen.column - count);
        return;
      case 'E':
        this.screen.column = 0;
        return this.screen.toRow(this.screen.row + count);
      case 'F':
        this.screen.column = 0;
        return this.screen.toRow(this.screen.row - count);
      case 'G':
      case '`':
        return this.screen.toColumn(count - 1);
      case 'H':
      case 'f':
        this.screen.toScreenRow(count - 1);
        return this.screen.toColumn((numbers[1] ?? 1) - 1);
      case 'd':
        return this.screen.toScreenRow(count - 1);
      case 'J':
        return this.screen.eraseScreen(first);
      case 'K':
        return this.screen.eraseLine(first);
      case 'L':
        return this.screen.insertRows(count);
      case 'M':
        return this.screen.deleteRows(count);
      case '@':
      case 'P':
      case 'X':
        return this.screen.editCells(Math.min(count, FARTHEST_COLUMN), final);
      case 's':
        return this.screen.save();
      case 'u':
        return this.screen.restore();
    }
  }
}

function matchAt(pattern: RegExp, text: string, position: number): RegExpExecArray | null {
  pattern.lastIndex = position;
  return pattern.exec(text);
}
