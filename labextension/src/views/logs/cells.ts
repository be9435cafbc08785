/**
 * The cells of one row of a terminal: what stands in each column, and how it looks. `terminal.ts` moves the cursor; here is
 * only what a row is. The same as `gpulayer/terminal_cells.py`; both are held to `tests/support/terminal_cases.json`.
 */

// The tables name what programs print, in both languages alike; each language's own would differ with its version of Unicode.
const ZERO =
  '\\u0300-\\u036f\\u0483-\\u0489\\u0591-\\u05bd\\u05bf\\u05c1\\u05c2\\u05c4\\u05c5\\u05c7\\u0610-\\u061a\\u064b-\\u065f\\u0670' +
  '\\u06d6-\\u06dc\\u06df-\\u06e4\\u06e7\\u06e8\\u06ea-\\u06ed\\u0900-\\u0902\\u093a\\u093c\\u0941-\\u0948\\u094d\\u0e31' +
  '\\u0e34-\\u0e3a\\u0e47-\\u0e4e\\u1ab0-\\u1aff\\u1dc0-\\u1dff\\u200b-\\u200f\\u202a-\\u202e\\u2060-\\u2064\\u2066-\\u2069' +
  '\\u20d0-\\u20f0\\u3099\\u309a\\ufe00-\\ufe0f\\ufe20-\\ufe2f\\ufeff\\u{e0100}-\\u{e01ef}';
const WIDE =
  '\\u1100-\\u115f\\u231a\\u231b\\u2329\\u232a\\u23e9-\\u23ec\\u23f0\\u23f3\\u25fd\\u25fe\\u2614\\u2615\\u2648-\\u2653\\u267f' +
  '\\u2693\\u26a1\\u26aa\\u26ab\\u26bd\\u26be\\u26c4\\u26c5\\u26ce\\u26d4\\u26ea\\u26f2\\u26f3\\u26f5\\u26fa\\u26fd\\u2705\\u270a' +
  '\\u270b\\u2728\\u274c\\u274e\\u2753-\\u2755\\u2757\\u2795-\\u2797\\u27b0\\u27bf\\u2b1b\\u2b1c\\u2b50\\u2b55\\u2e80-\\u3029' +
  '\\u3030-\\u303e\\u3041-\\u3098\\u309b-\\u4dbf\\u4e00-\\ua4cf\\ua960-\\ua97c\\uac00-\\ud7a3\\uf900-\\ufaff\\ufe10-\\ufe19' +
  '\\ufe30-\\ufe6f\\uff01-\\uff60\\uffe0-\\uffe6\\u{1f004}\\u{1f0cf}\\u{1f18e}\\u{1f191}-\\u{1f19a}\\u{1f200}-\\u{1f320}' +
  '\\u{1f32d}-\\u{1f335}\\u{1f337}-\\u{1f37c}\\u{1f37e}-\\u{1f393}\\u{1f3a0}-\\u{1f3ca}\\u{1f3cf}-\\u{1f3d3}' +
  '\\u{1f3e0}-\\u{1f3f0}\\u{1f3f4}\\u{1f3f8}-\\u{1f43e}\\u{1f440}\\u{1f442}-\\u{1f4fc}\\u{1f4ff}-\\u{1f53d}' +
  '\\u{1f54b}-\\u{1f54e}\\u{1f550}-\\u{1f567}\\u{1f57a}\\u{1f595}\\u{1f596}\\u{1f5a4}\\u{1f5fb}-\\u{1f64f}' +
  '\\u{1f680}-\\u{1f6c5}\\u{1f6cc}\\u{1f6d0}-\\u{1f6d2}\\u{1f6d5}-\\u{1f6d7}\\u{1f6dc}-\\u{1f6df}\\u{1f6eb}\\u{1f6ec}' +
  '\\u{1f6f4}-\\u{1f6fc}\\u{1f7e0}-\\u{1f7eb}\\u{1f7f0}\\u{1f90c}-\\u{1f93a}\\u{1f93c}-\\u{1f945}\\u{1f947}-\\u{1f9ff}' +
  '\\u{1fa70}-\\u{1faff}\\u{20000}-\\u{3fffd}';
// eslint-disable-next-line no-misleading-character-class -- each is meant by itself
const ZERO_WIDTH = new RegExp(`^[${ZERO}]`, 'u');
const WIDE_CHARACTER = new RegExp(`^[${WIDE}]`, 'u');

/** What does not stand alone in one column. All beyond U+FFFF is among it: here it takes two places of a string. */
// eslint-disable-next-line no-misleading-character-class -- as above
export const COMPLEX = new RegExp(`[${ZERO}${WIDE}\\ud800-\\udfff\\u{10000}-\\u{10ffff}]`, 'u');

/** Characters of no width that one cell takes; what comes after is dropped. */
const MOST_IN_CELL = 12;

/** Characters of no width that belong to the cell before, and a cell for each column: "" for a wide one's second. */
export function cellsOf(text: string): { leading: string; cells: string[] } {
  let leading = '';
  const cells: string[] = [];
  for (const character of text) {
    if (ZERO_WIDTH.test(character)) {
      if (cells.length > 0) {
        const at = cells.length - (cells[cells.length - 1] === '' ? 2 : 1);
        cells[at] = joined(cells[at] ?? '', character);
      } else {
        leading += character;
      }
    } else {
      cells.push(character);
      if (WIDE_CHARACTER.test(character)) {
        cells.push('');
      }
    }
  }
  return { leading, cells };
}

/** One row whose columns hold more than plain characters. */
export class Row {
  private readonly cells: string[];
  private readonly marks: string[];

  constructor(text: string) {
    this.cells = [...text];
    this.marks = this.cells.map(() => '');
  }

  get length(): number {
    return this.cells.length;
  }

  put(column: number, cells: readonly string[], mark: string): void {
    while (this.cells.length < column) {
      this.cells.push(' ');
      this.marks.push('');
    }
    this.part(column);
    this.part(column + cells.length);
    for (let index = 0; index < cells.length; index++) {
      this.cells[column + index] = cells[index] ?? '';
      this.marks[column + index] = mark;
    }
  }

  /** Add characters of no width to the one that stands there. */
  join(column: number, text: string): void {
    if (column < this.cells.length) {
      const at = column > 0 && this.cells[column] === '' ? column - 1 : column;
      this.cells[at] = joined(this.cells[at] ?? '', text);
    }
  }

  cut(column: number): void {
    this.part(column);
    this.cells.splice(column);
    this.marks.splice(column);
  }

  insert(column: number, count: number): void {
    if (column < this.cells.length) {
      this.part(column);
      this.cells.splice(column, 0, ...Array<string>(count).fill(' '));
      this.marks.splice(column, 0, ...Array<string>(count).fill(''));
    }
  }

  delete(column: number, count: number): void {
    this.part(column);
    this.part(column + count);
    this.cells.splice(column, count);
    this.marks.splice(column, count);
  }

  /** Its text to the last cell that shows something; each stretch of one style begins and ends itself. */
  rendered(): string {
    const { cells, marks } = this;
    let end = cells.length;
    while (end > 0 && cells[end - 1] === ' ' && marks[end - 1] === '') {
      end--;
    }
    let text = '';
    let mark = '';
    for (let index = 0; index < end; index++) {
      const next = marks[index] ?? '';
      if (next !== mark) {
        text += (mark && '\x1b[0m') + (next && `\x1b[${next}m`);
        mark = next;
      }
      text += cells[index] ?? '';
    }
    return text + (mark && '\x1b[0m');
  }

  /** Half a wide character is none: a blank stays of the half that is kept. */
  private part(column: number): void {
    if (column > 0 && column < this.cells.length && this.cells[column] === '') {
      this.cells[column - 1] = this.cells[column] = ' ';
    }
  }
}

/** Counted in characters, not in places of a string. */
function joined(cell: string, text: string): string {
  return [...cell, ...text].slice(0, MOST_IN_CELL).join('');
}
