/** Tabs as the ARIA practices have them: arrow keys go round, only those with something in them are shown, each is drawn when first opened. */
import { element, setText, uniqueId } from './elements';

export interface Tab {
  id: string;
  label: string;
  /** Makes what the tab shows, when it is first opened. */
  draw(): HTMLElement;
  /** Called each time it is opened or left. */
  onShown?(isShown: boolean): void;
}

interface Made {
  tab: Tab;
  button: HTMLButtonElement;
  panel: HTMLElement;
  isDrawn: boolean;
}

export class Tabs {
  readonly list: HTMLElement;
  readonly panels = element('div', { class: 'jp-gpulayer-panels' });
  private readonly tabs: Made[] = [];
  private opened: Made | null = null;

  constructor(label: string, tabs: readonly Tab[]) {
    this.list = element('div', { class: 'jp-gpulayer-tabs', role: 'tablist', 'aria-label': label, hidden: true });
    for (const tab of tabs) {
      const [id, panelId] = [uniqueId(tab.id), uniqueId(`${tab.id}-panel`)];
      const control = element(
        'button',
        {
          type: 'button',
          id,
          role: 'tab',
          class: 'jp-gpulayer-tab',
          'aria-controls': panelId,
          'aria-selected': 'false',
          tabindex: -1,
          hidden: true,
        },
        tab.label,
      );
      const panel = element('div', {
        id: panelId,
        role: 'tabpanel',
        class: `jp-gpulayer-panel jp-gpulayer-panel-${tab.id}`,
        'aria-labelledby': id,
        hidden: true,
      });
      const made: Made = { tab, button: control, panel, isDrawn: false };
      control.addEventListener('click', () => this.open(made));
      this.tabs.push(made);
      this.list.append(control);
      this.panels.append(panel);
    }
    this.list.addEventListener('keydown', event => this.onKey(event));
  }

  get selected(): string | null {
    return this.opened?.tab.id ?? null;
  }

  /** Offer a tab or not; the first that is offered is opened, and one that goes away leaves its place to it. */
  offer(id: string, isOffered: boolean): void {
    const made = this.find(id);
    if (made === null || made.button.hidden !== isOffered) {
      return;
    }
    made.button.hidden = !isOffered;
    this.list.hidden = this.offered().length < 2;
    if (isOffered && this.opened === null) {
      this.open(made);
    } else if (!isOffered && this.opened === made) {
      const first = this.offered()[0];
      if (first) {
        this.open(first);
      }
    }
  }

  select(id: string): void {
    const made = this.find(id);
    if (made !== null && !made.button.hidden) {
      this.open(made);
    }
  }

  /** For those whose control went with the panel that they left. */
  focus(): void {
    this.opened?.button.focus();
  }

  setLabel(id: string, label: string): void {
    const made = this.find(id);
    if (made !== null) {
      setText(made.button, label);
      this.revealOpened();
    }
  }

  private find(id: string): Made | null {
    return this.tabs.find(made => made.tab.id === id) ?? null;
  }

  private offered(): Made[] {
    return this.tabs.filter(made => !made.button.hidden);
  }

  private open(made: Made): void {
    const before = this.opened;
    if (before === made) {
      return;
    }
    this.opened = made;
    for (const one of this.tabs) {
      const isSelected = one === made;
      one.button.setAttribute('aria-selected', String(isSelected));
      one.button.tabIndex = isSelected ? 0 : -1;
      one.panel.hidden = !isSelected;
    }
    if (!made.isDrawn) {
      made.isDrawn = true;
      made.panel.append(made.tab.draw());
    }
    this.revealOpened();
    before?.tab.onShown?.(false);
    made.tab.onShown?.(true);
  }

  /** Where not all tabs fit, the open one is in sight; the page itself does not move. */
  private revealOpened(): void {
    if (this.opened !== null) {
      const [tab, list] = [this.opened.button, this.list].map(one => one.getBoundingClientRect()) as [DOMRect, DOMRect];
      this.list.scrollLeft += Math.max(0, tab.right - list.right) - Math.max(0, list.left - tab.left);
    }
  }

  private onKey(event: KeyboardEvent): void {
    const offered = this.offered();
    const at = offered.findIndex(made => made === this.opened);
    const to = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: offered.length - 1 }[event.key];
    if (to === undefined || !offered.length) {
      return;
    }
    const next = offered[(to + offered.length) % offered.length];
    event.preventDefault();
    if (next) {
      this.open(next);
      next.button.focus();
    }
  }
}
