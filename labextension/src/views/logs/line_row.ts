/** Draws one line's row: its number, whose it is, and its text. */
import { button, element } from '../elements';
import type { JobSource } from '../source';
import { count } from '../units';
import { groundOf, spansOf, SHOWN_CHARACTERS, type Ground } from './line_spans';
import type { Line } from './model';
import { plainText } from './search';

export interface RowFacts {
  number: number;
  pattern: RegExp | null;
  isCurrent: boolean;
  /** Lines of several ranks are shown. */
  isMerged: boolean;
}

export class LineRow {
  /** There are several ranks. */
  showsRanks = false;
  private colours: Ground | null = null;

  constructor(
    private readonly source: JobSource,
    private readonly showWhole: (text: string) => void,
  ) {}

  /** Read the page's colours, where they are not known. */
  ground(node: Element): void {
    this.colours ??= groundOf(node);
  }

  /** Read the page's colours again; whether they differ. */
  changesGround(node: Element): boolean {
    const before = JSON.stringify(this.colours);
    this.colours = groundOf(node);
    return JSON.stringify(this.colours) !== before;
  }

  draw(row: HTMLElement, line: Line, facts: RowFacts): void {
    const { trans } = this.source;
    row.classList.toggle('jp-mod-current', facts.isCurrent);
    row.classList.toggle('jp-mod-stderr', line.name.stream === 'stderr' && line.kind === 'line');
    row.classList.toggle('jp-mod-note', line.kind !== 'line');
    const number = element(
      'span',
      { class: 'jp-gpulayer-logs-number', 'aria-hidden': 'true', title: trans.__('Line number') },
      line.kind === 'line' ? count(facts.number) : '',
    );
    const children: Node[] = [number];
    if (facts.isMerged && (this.showsRanks || line.name.rank === null)) {
      const title = line.name.rank === null ? '' : trans.__('Rank %1', line.name.rank);
      children.push(element('span', { class: 'jp-gpulayer-logs-rank', title }, this.rankText(line)));
    }
    if (line.kind === 'line' && line.name.stream === 'stderr') {
      children.push(element('span', { class: 'jp-gpulayer-logs-err', title: trans.__('stderr') }, 'err'));
    }
    row.replaceChildren(...children, line.kind === 'line' ? this.text(line, facts) : this.note(line));
  }

  private rankText({ name }: Line): string {
    const { trans } = this.source;
    if (name.rank !== null) {
      return trans.__('r%1', name.rank);
    }
    return name.node === 0 ? trans.__('launcher') : trans.__('launcher of node %1', name.node);
  }

  private text(line: Line, facts: RowFacts): Node {
    const { trans } = this.source;
    const { background = [255, 255, 255], text = [0, 0, 0] } = this.colours ?? {};
    const shown = element(
      'span',
      { class: 'jp-gpulayer-logs-text' },
      ...spansOf(line.text, facts.pattern, { background, text }),
    );
    const length = line.text.length > SHOWN_CHARACTERS ? plainText(line.text).length : 0;
    if (length > SHOWN_CHARACTERS) {
      const label = trans.__('… %1 more characters', count(length - SHOWN_CHARACTERS));
      const more = button(label, () => this.showWhole(plainText(line.text)), {
        class: 'jp-gpulayer-link jp-gpulayer-logs-more',
        'aria-label': trans.__('Show the whole line of %1 characters', count(length)),
      });
      return element('span', {}, shown, more);
    }
    return shown;
  }

  private note(line: Line): Node {
    const { trans, actions } = this.source;
    const number = Number(line.text);
    const words =
      line.kind === 'attempt'
        ? trans.__('attempt %1 begins', number)
        : trans._n('%2 line skipped', '%2 lines skipped', number, count(number));
    const note = element('span', { class: 'jp-gpulayer-logs-text' }, words);
    if (line.kind === 'gap' && actions.logUrl) {
      note.append(' · ', downloadLink(actions.logUrl(line.name.rank, 'plain'), trans.__('download')));
    }
    return note;
  }
}

export function downloadLink(url: string, text: string): HTMLAnchorElement {
  return element('a', { class: 'jp-gpulayer-link', href: url, download: true }, text);
}
