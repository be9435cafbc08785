/**
 * Text that is selected over rows of which only some are in the page: the rows where it begins and ends stay there, and
 * what is copied comes from the lines.
 */
import type { VirtualRows } from './virtual_rows';

export class SelectedText {
  private readonly listeners = new Set<() => void>();
  private readonly onSelection = (): void => this.follow();

  constructor(
    private readonly rows: VirtualRows,
    private readonly textOf: (place: number) => string,
  ) {
    document.addEventListener('selectionchange', this.onSelection);
    rows.node.addEventListener('copy', event => this.copy(event));
  }

  /** Told when something of the lines is selected. */
  onSelect(on: () => void): { dispose(): void } {
    this.listeners.add(on);
    return { dispose: () => this.listeners.delete(on) };
  }

  clear(): void {
    this.rows.pin([]);
  }

  dispose(): void {
    document.removeEventListener('selectionchange', this.onSelection);
    this.listeners.clear();
  }

  private follow(): void {
    const places = this.ends();
    this.rows.pin(places ? places.map(({ place }) => place) : []);
    if (places) {
      this.listeners.forEach(on => on());
    }
  }

  /** Where the selection begins and ends, in the order of the lines; null where it is not of lines alone. */
  private ends(): { place: number; offset: number }[] | null {
    const selection = document.getSelection();
    if (!selection || selection.isCollapsed || selection.rangeCount === 0) {
      return null;
    }
    const range = selection.getRangeAt(0);
    const from = this.endAt(range.startContainer, range.startOffset);
    const to = this.endAt(range.endContainer, range.endOffset);
    return from && to ? [from, to] : null;
  }

  private endAt(node: Node, offset: number): { place: number; offset: number } | null {
    const place = this.rows.placeOf(node);
    const row = (node instanceof Element ? node : node.parentElement)?.closest('.jp-gpulayer-logs-row');
    const text = row?.querySelector('.jp-gpulayer-logs-text');
    if (place === null || !text) {
      return null;
    }
    const before = document.createRange();
    before.selectNodeContents(text);
    if (before.comparePoint(node, offset) < 0) {
      return { place, offset: 0 };
    }
    if (before.comparePoint(node, offset) === 0) {
      before.setEnd(node, offset);
    }
    return { place, offset: before.toString().length };
  }

  private copy(event: ClipboardEvent): void {
    const [from, to] = this.ends() ?? [];
    if (!from || !to || !event.clipboardData) {
      return;
    }
    const lines: string[] = [];
    const last = this.rows.positionOf(to.place);
    for (let position = this.rows.positionOf(from.place); position <= last; position++) {
      const place = this.rows.placeAt(position);
      const text = this.textOf(place);
      const start = place === from.place ? from.offset : 0;
      lines.push(place === to.place ? text.slice(start, to.offset) : text.slice(start));
    }
    event.clipboardData.setData('text/plain', lines.join('\n'));
    event.preventDefault();
  }
}
