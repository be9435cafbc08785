/**
 * The rows that a terminal's cursor can reach, and what moving it, writing and erasing do to them. Reads no sequences:
 * `terminal.ts` does.
 */
import { COMPLEX, Row, cellsOf } from './cells';

/** Rows that the cursor can reach; what is above is final. No terminal that a person looks at is higher. */
export const TAIL_ROWS = 200;
/** Where a row is named by its number, it is one of the last that many: what programs assume of a terminal that tells no size. */
const SCREEN_ROWS = 24;
/** A longer line goes on in the next row, so that one without an end costs no more than others. */
const MOST_COLUMNS = 32_768;
/** Where moving right ends, since there is no margin. */
export const FARTHEST_COLUMN = 999;

type AnyRow = string | Row; // a string has only plain characters of one column each

export class Screen {
  /** The first row that may have changed since this was set. */
  changedFrom = 0;
  row = 0;
  column = 0;
  /** The style of what is written, as SGR parameters. */
  mark = '';

  private rows: AnyRow[] = [''];
  private saved = { row: 0, column: 0 };
  /** Where the cursor went up to last: what draws several lines goes up to the first of them each time. */
  private drawnFrom = Infinity;
  private final: string[] = [];

  /** The lines that became final since they were taken. */
  takeFinal(): string[] {
    const final = this.final;
    this.final = [];
    return final;
  }

  /** The lines that may still change, the last of the stream: at most `TAIL_ROWS`. */
  openLines(): string[] {
    let last = this.rows.length;
    while (last > this.row && rendered(this.rows[last - 1]) === '') {
      last--; // where the cursor has been, but nothing stands
    }
    return this.rows.slice(0, last).map(rendered);
  }

  /** The first row that is not finished: that of the cursor, or where it draws several; none where the next row is yet to begin. */
  unfinishedFrom(): number {
    if (this.isAtEnd && rendered(this.rows[this.row]) === '') {
      this.drawnFrom = Infinity;
      return this.rows.length;
    }
    return Math.min(this.row, this.drawnFrom);
  }

  get isAtEnd(): boolean {
    return this.column === 0 && this.row === this.rows.length - 1;
  }

  // ---- plain text, which is nearly all of it

  /** Take in text without control characters but newlines; false where that takes more care. */
  appendPlain(text: string): boolean {
    const row = this.rows[this.row];
    if (
      this.mark !== '' ||
      this.row !== this.rows.length - 1 ||
      typeof row !== 'string' ||
      row.length !== this.column
    ) {
      return false;
    }
    if (COMPLEX.test(text)) {
      return false;
    }
    const lines = text.split('\n');
    this.drawnFrom = lines.length > 1 ? Infinity : this.drawnFrom;
    lines[0] = row + (lines[0] ?? '');
    if (text.length + row.length > MOST_COLUMNS && lines.some(line => line.length > MOST_COLUMNS)) {
      return false;
    }
    this.rows.pop();
    // One by one: a push of very many arguments overflows the stack.
    lines.forEach(line => this.rows.push(line));
    const over = this.rows.length - TAIL_ROWS;
    if (over > 0) {
      for (let index = 0; index < over; index++) {
        this.final.push(rendered(this.rows[index]));
      }
      this.rows = this.rows.slice(over);
      this.moveUp(over);
    }
    this.row = this.rows.length - 1;
    this.column = lines[lines.length - 1]?.length ?? 0;
    return true;
  }

  // ---- the cursor

  lineFeed(): void {
    this.row++;
    if (this.row === this.rows.length) {
      this.rows.push('');
      if (this.rows.length > TAIL_ROWS) {
        this.final.push(rendered(this.rows.shift()));
        this.row--;
        this.moveUp(1);
      }
    }
  }

  private moveUp(count: number): void {
    this.changedFrom = Math.max(0, this.changedFrom - count);
    this.drawnFrom = Math.max(0, this.drawnFrom - count);
    this.saved = { row: Math.max(0, this.saved.row - count), column: this.saved.column };
  }

  toRow(row: number): void {
    const before = this.row;
    this.row = Math.min(Math.max(0, row), this.rows.length - 1);
    this.drawnFrom = this.row < before ? this.row : this.drawnFrom;
    this.changedFrom = Math.min(this.changedFrom, this.row);
  }

  toColumn(column: number): void {
    this.column = Math.max(0, Math.min(column, Math.max(FARTHEST_COLUMN, this.rows[this.row]?.length ?? 0)));
  }

  toScreenRow(number: number): void {
    const row = Math.max(0, this.rows.length - SCREEN_ROWS) + Math.min(number, SCREEN_ROWS - 1);
    while (this.rows.length <= row) {
      this.rows.push('');
    }
    this.toRow(row);
  }

  save(): void {
    this.saved = { row: this.row, column: this.column };
  }

  restore(): void {
    this.column = this.saved.column;
    this.toRow(this.saved.row);
  }

  // ---- cells

  put(run: string): void {
    if (COMPLEX.test(run)) {
      const { leading, cells } = cellsOf(run);
      if (leading !== '' && this.column > 0) {
        this.cells().join(this.column - 1, leading);
      }
      this.putWrapped(cells);
    } else if (this.column + run.length > MOST_COLUMNS) {
      this.putWrapped([...run]);
    } else {
      this.putPlain(run);
    }
  }

  private putPlain(run: string): void {
    const { row: at, column } = this;
    const row = this.rows[at];
    if (typeof row !== 'string' || this.mark !== '') {
      this.cells().put(column, [...run], this.mark);
    } else if (column >= row.length) {
      this.rows[at] = row.padEnd(column) + run;
    } else {
      this.rows[at] = row.slice(0, column) + run + row.slice(column + run.length);
    }
    this.column = column + run.length;
  }

  private putWrapped(cells: readonly string[]): void {
    let start = 0;
    while (start < cells.length) {
      let end = Math.min(cells.length, start + Math.max(0, MOST_COLUMNS - this.column));
      if (end < cells.length && cells[end] === '' && end > start) {
        end--; // a wide character is not cut
      }
      if (end > start) {
        this.cells().put(this.column, cells.slice(start, end), this.mark);
        this.column += end - start;
      }
      if (end < cells.length) {
        this.column = 0;
        this.lineFeed();
      }
      start = end;
    }
  }

  private cells(): Row {
    const row = this.rows[this.row];
    if (row instanceof Row) {
      return row;
    }
    const made = new Row(row ?? '');
    this.rows[this.row] = made;
    return made;
  }

  // ---- erasing and shifting

  eraseLine(which: number): void {
    const row = this.rows[this.row] ?? '';
    if (which === 2) {
      this.rows[this.row] = '';
    } else if (which === 0 && row instanceof Row) {
      row.cut(this.column);
    } else if (which === 0) {
      this.rows[this.row] = (row as string).slice(0, this.column);
    } else if (which === 1) {
      this.cells().put(0, blanks(Math.min(this.column + 1, row.length)), '');
    }
  }

  eraseScreen(which: number): void {
    if (which === 0) {
      this.eraseLine(0);
      this.rows.splice(this.row + 1);
    } else if (which === 1) {
      for (let row = Math.max(0, this.rows.length - SCREEN_ROWS); row < this.row; row++) {
        this.rows[row] = '';
      }
      this.eraseLine(1);
      this.changedFrom = 0;
    } else if (which === 2) {
      // What stood there moves up, as in terminals that keep a cleared screen: a log loses nothing.
      this.final.push(...this.openLines());
      this.rows = [''];
      this.saved = { row: 0, column: 0 };
      this.row = this.changedFrom = 0;
      this.drawnFrom = Infinity;
    }
  }

  insertRows(count: number): void {
    this.column = 0;
    this.rows.splice(this.row, 0, ...blanks(Math.min(count, TAIL_ROWS - this.row), ''));
    this.rows.splice(TAIL_ROWS); // pushed out at the bottom
  }

  deleteRows(count: number): void {
    this.column = 0;
    this.rows.splice(this.row, count);
    if (this.row >= this.rows.length) {
      this.rows.push('');
    }
  }

  editCells(count: number, what: string): void {
    const row = this.cells();
    if (what === '@') {
      row.insert(this.column, count);
      row.cut(MOST_COLUMNS);
    } else if (what === 'P') {
      row.delete(this.column, count);
    } else {
      row.put(this.column, blanks(Math.max(0, Math.min(count, row.length - this.column))), '');
    }
  }
}

function blanks(count: number, blank = ' '): string[] {
  return Array<string>(count).fill(blank);
}

function rendered(row: AnyRow | undefined): string {
  if (row instanceof Row) {
    return row.rendered();
  }
  const text = row ?? '';
  return text.endsWith(' ') ? text.replace(/ +$/, '') : text;
}
