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
  private readonly trans: Translator;
  private readonly choose: (rank: number) => void;
  private readonly grid: HTMLElement;
  private readonly summary = element('p', { class: 'jp-gpulayer-note' });
  private readonly table = element('div', { class: 'jp-gpulayer-scroll', tabindex: 0, role: 'region' });
  private readonly all: HTMLButtonElement;
  private rows: RankRow[] = [];
  private drawn = '';
  private showsAll = false;
  private current = 0;

  constructor(trans: Translator, choose: (rank: number) => void) {
    this.trans = trans;
    this.choose = choose;
    this.grid = element('div', { class: 'jp-gpulayer-grid', role: 'toolbar', 'aria-label': trans.__('Ranks') });
    this.grid.addEventListener('keydown', event => this.move(event));
    this.table.setAttribute('aria-label', trans.__('Table of ranks'));
    this.all = button('', () => this.toggle(), { 'aria-expanded': 'false' });
    this.node.append(this.summary, this.grid, this.table, this.all);
  }

  update(status: JobStatus): void {
    const rows = rankRows(status, this.trans);
    const key = JSON.stringify(rows);
    if (key !== this.drawn) {
      this.drawn = key;
      this.rows = rows;
      this.draw();
    }
  }

  private draw(): void {
    const rows = this.rows;
    const isMany = rows.length > MOST_ROWS;
    const focused = this.focused();
    const odd = oddOnes(rows);
    this.grid.hidden = this.all.hidden = !isMany;
    this.summary.hidden = !isMany;
    if (isMany) {
      this.grid.replaceChildren(...rows.map(row => this.cell(row)));
      this.summary.textContent = summary(rows, this.trans);
      setText(
        this.all,
        this.showsAll ? this.trans.__('Only those that stand out') : this.trans.__('All %1 as a table', rows.length),
      );
      this.all.setAttribute('aria-expanded', String(this.showsAll));
    }
    const shown =
      isMany && !this.showsAll ? odd.slice(0, MOST_ROWS) : [...odd, ...rows.filter(row => !odd.includes(row))];
    this.table.hidden = !shown.length;
    this.table.replaceChildren(this.tableOf(shown));
    if (focused !== null) {
      this.node.querySelector<HTMLElement>(focused)?.focus();
    }
  }

  private tableOf(rows: readonly RankRow[]): HTMLElement {
    const trans = this.trans;
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
      element('tbody', {}, ...rows.map(row => this.row(row, launchers, notes))),
    );
  }

  private row(row: RankRow, launchers: boolean, notes: boolean): HTMLElement {
    const where =
      row.host !== null && row.host !== row.worker ? `${row.worker ?? ''} (${row.host})` : (row.worker ?? '–');
    const choose = button(String(row.rank), () => this.choose(row.rank), {
      class: 'jp-gpulayer-link',
      'data-row': row.rank,
      'aria-label': this.trans.__('Show the output of rank %1', row.rank),
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

  private cell(row: RankRow): HTMLElement {
    const text = this.trans.__('Rank %1 on %2: %3', row.rank, row.worker ?? '–', row.state);
    const cell = button('', () => this.choose(row.rank), {
      class: `jp-gpulayer-button jp-gpulayer-cell jp-gpulayer-cell-${row.phase}`,
      title: text,
      'aria-label': text,
      'data-cell': row.rank,
      tabindex: row.rank === this.current ? 0 : -1,
    });
    cell.append(stateMark(row.phase));
    return cell;
  }

  /** Arrow keys go through the grid, which is one stop of the tabulator. */
  private move(event: KeyboardEvent): void {
    const cells = [...this.grid.children] as HTMLElement[];
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
    this.current = Number(next?.dataset['cell'] ?? 0);
  }

  private toggle(): void {
    this.showsAll = !this.showsAll;
    this.draw();
  }

  private focused(): string | null {
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
