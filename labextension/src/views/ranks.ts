/**
 * The ranks of a job: where each runs and how it ended, those that stand out first. Few are a table; many are a grid of
 * small marks with a table of the odd ones. Choosing one shows its output.
 */
import type { JobStatus } from '../protocol';
import { button, element, setText } from './elements';
import { rankRows, oddOnes, type RankRow } from './rank_rows';
import type { Translator } from './source';
import { stateMark } from './state_marks';
import { ranges } from './units';

const MOST_ROWS = 16;

export class Ranks {
  readonly node = element('div', { class: 'jp-gpulayer-ranks' });
  private readonly _trans: Translator;
  private readonly _choose: (rank: number) => void;
  private readonly _grid: HTMLElement;
  private readonly _summary = element('p', { class: 'jp-gpulayer-note' });
  private readonly _table = element('div', { class: 'jp-gpulayer-scroll', tabindex: 0, role: 'region' });
  private readonly _all: HTMLButtonElement;
  private _rows: RankRow[] = [];
  private _drawn = '';
  private _showsAll = false;
  private _current = 0;

  constructor(trans: Translator, choose: (rank: number) => void) {
    this._trans = trans;
    this._choose = choose;
    this._grid = element('div', { class: 'jp-gpulayer-grid', role: 'toolbar', 'aria-label': trans.__('Ranks') });
    this._grid.addEventListener('keydown', event => this._move(event));
    this._table.setAttribute('aria-label', trans.__('Table of ranks'));
    this._all = button('', () => this._toggle(), { 'aria-expanded': 'false' });
    this.node.append(this._summary, this._grid, this._table, this._all);
  }

  update(status: JobStatus): void {
    const rows = rankRows(status, this._trans);
    const key = JSON.stringify(rows);
    if (key !== this._drawn) {
      this._drawn = key;
      this._rows = rows;
      this._draw();
    }
  }

  private _draw(): void {
    const rows = this._rows;
    const isMany = rows.length > MOST_ROWS;
    const focused = this._focused();
    const odd = oddOnes(rows);
    this._grid.hidden = this._all.hidden = !isMany;
    this._summary.hidden = !isMany;
    if (isMany) {
      this._grid.replaceChildren(...rows.map(row => this._cell(row)));
      this._summary.textContent = summary(rows, this._trans);
      setText(
        this._all,
        this._showsAll ? this._trans.__('Only those that stand out') : this._trans.__('All %1 as a table', rows.length),
      );
      this._all.setAttribute('aria-expanded', String(this._showsAll));
    }
    const shown =
      isMany && !this._showsAll ? odd.slice(0, MOST_ROWS) : [...odd, ...rows.filter(row => !odd.includes(row))];
    this._table.hidden = !shown.length;
    this._table.replaceChildren(this._tableOf(shown));
    if (focused !== null) {
      this.node.querySelector<HTMLElement>(focused)?.focus();
    }
  }

  private _tableOf(rows: readonly RankRow[]): HTMLElement {
    const trans = this._trans;
    const notes = rows.some(row => row.note !== null);
    const launchers = rows.some(row => row.launcher !== null);
    const heads = [
      trans.__('Rank'),
      trans.__('Node'),
      trans.__('Worker'),
      trans.__('Device'),
      trans.__('State'),
      ...(launchers ? [trans.__('Started')] : []),
      ...(notes ? [trans.__('Note')] : []),
    ];
    const head = element('tr', {}, ...heads.map(text => element('th', { scope: 'col' }, text)));
    return element(
      'table',
      { class: 'jp-gpulayer-table' },
      element('thead', {}, head),
      element('tbody', {}, ...rows.map(row => this._row(row, launchers, notes))),
    );
  }

  private _row(row: RankRow, launchers: boolean, notes: boolean): HTMLElement {
    const where =
      row.host !== null && row.host !== row.worker ? `${row.worker ?? ''} (${row.host})` : (row.worker ?? '–');
    const choose = button(String(row.rank), () => this._choose(row.rank), {
      class: 'jp-gpulayer-link',
      'data-row': row.rank,
      'aria-label': this._trans.__('Show the output of rank %1', row.rank),
    });
    return element(
      'tr',
      { class: row.first ? 'jp-gpulayer-guilty' : null },
      element('th', { scope: 'row' }, choose),
      element('td', {}, String(row.node)),
      element('td', {}, where),
      element('td', { class: 'jp-gpulayer-device', title: row.device }, row.device ?? '–'),
      element('td', {}, element('span', { class: 'jp-gpulayer-state' }, stateMark(row.phase), row.state)),
      launchers && element('td', {}, row.launcher ?? '–'),
      notes && element('td', { class: 'jp-gpulayer-wide' }, row.note ?? ''),
    );
  }

  private _cell(row: RankRow): HTMLElement {
    const text = this._trans.__('Rank %1 on %2: %3', row.rank, row.worker ?? '–', row.state);
    const cell = button('', () => this._choose(row.rank), {
      class: `jp-gpulayer-button jp-gpulayer-cell jp-gpulayer-cell-${row.phase}`,
      title: text,
      'aria-label': text,
      'data-cell': row.rank,
      tabindex: row.rank === this._current ? 0 : -1,
    });
    cell.append(stateMark(row.phase));
    return cell;
  }

  /** Arrow keys go through the grid, which is one stop of the tabulator. */
  private _move(event: KeyboardEvent): void {
    const cells = [...this._grid.children] as HTMLElement[];
    const at = cells.indexOf(document.activeElement as HTMLElement);
    const step = stepOf(event.key, columnsOf(cells), cells.length);
    if (at < 0 || step === null) {
      return;
    }
    const next = cells[Math.min(cells.length - 1, Math.max(0, at + step))];
    event.preventDefault();
    cells[at]?.setAttribute('tabindex', '-1');
    next?.setAttribute('tabindex', '0');
    next?.focus();
    this._current = Number(next?.dataset['cell'] ?? 0);
  }

  private _toggle(): void {
    this._showsAll = !this._showsAll;
    this._draw();
  }

  private _focused(): string | null {
    const active = document.activeElement;
    if (!(active instanceof HTMLElement) || !this.node.contains(active)) {
      return null;
    }
    const { row, cell } = active.dataset;
    return row !== undefined ? `[data-row="${row}"]` : cell !== undefined ? `[data-cell="${cell}"]` : null;
  }
}

/** `61 running on 8 workers · 3 failed: 5, 9, 12`: the most common state without its ranks. */
function summary(rows: readonly RankRow[], trans: Translator): string {
  const byState = new Map<string, number[]>();
  for (const row of rows) {
    byState.set(row.state, [...(byState.get(row.state) ?? []), row.rank]);
  }
  const groups = [...byState].sort(([, one], [, other]) => other.length - one.length);
  const workers = new Set(rows.map(row => row.worker).filter(Boolean)).size;
  const parts = groups
    .slice(0, 5)
    .map(([state, ranks], index) =>
      index ? `${ranks.length} ${state}: ${ranges(ranks)}` : `${ranks.length} ${state}`,
    );
  const where = workers ? trans._n('%1 worker', '%1 workers', workers) : null;
  return [trans.__('%1 ranks', rows.length), where, ...parts].filter(Boolean).join(' · ');
}

function stepOf(key: string, columns: number, all: number): number | null {
  switch (key) {
    case 'ArrowRight':
      return 1;
    case 'ArrowLeft':
      return -1;
    case 'ArrowDown':
      return columns;
    case 'ArrowUp':
      return -columns;
    case 'Home':
      return -all;
    case 'End':
      return all;
    default:
      return null;
  }
}

/** How many stand in a row at the width at hand. */
function columnsOf(cells: readonly HTMLElement[]): number {
  const top = cells[0]?.offsetTop;
  const found = cells.findIndex(cell => cell.offsetTop !== top);
  return found < 0 ? cells.length : found;
}
