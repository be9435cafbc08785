/** Where one types what to find, and what was found. Knows no logs. */
import { button, element, setText } from '../elements';
import type { Translator } from '../source';

export interface FindActions {
  find(query: string, isCaseSensitive: boolean): void;
  step(backwards: boolean): void;
  loadEarlier(): void;
  close(): void;
}

export class FindBar {
  readonly node: HTMLElement;
  private readonly box: HTMLInputElement;
  private readonly caseButton: HTMLButtonElement;
  private readonly count = element('span', { class: 'jp-gpulayer-logs-count', role: 'status' });
  private readonly left = element('span', { class: 'jp-gpulayer-logs-left' });
  private readonly load: HTMLButtonElement;

  constructor(
    trans: Translator,
    private readonly actions: FindActions,
  ) {
    this.box = element('input', {
      type: 'search',
      class: 'jp-gpulayer-logs-box',
      placeholder: trans.__('Find'),
      'aria-label': trans.__('Find in the output'),
      spellcheck: 'false',
      autocomplete: 'off',
    });
    this.caseButton = button('Aa', () => this.toggleCase(), {
      'aria-pressed': 'false',
      'aria-label': trans.__('Match case'),
      title: trans.__('Match case'),
    });
    this.load = button(trans.__('Load them'), () => actions.loadEarlier(), {
      'aria-label': trans.__('Load earlier lines, to search them too'),
    });
    this.node = element(
      'div',
      { class: 'jp-gpulayer-logs-find', role: 'search' },
      this.box,
      this.caseButton,
      button('↑', () => actions.step(true), { 'aria-label': trans.__('Previous match') }),
      button('↓', () => actions.step(false), { 'aria-label': trans.__('Next match') }),
      this.count,
      this.left,
      this.load,
      button('×', () => actions.close(), { 'aria-label': trans.__('Close') }),
    );
    this.box.addEventListener('input', () => this.find());
    this.node.addEventListener('keydown', event => this.onKey(event));
    this.node.hidden = this.load.hidden = true;
  }

  get isOpen(): boolean {
    return !this.node.hidden;
  }

  open(): void {
    this.node.hidden = false;
    this.box.focus();
    this.box.select();
    this.find();
  }

  close(): void {
    this.node.hidden = true;
  }

  /** What was found, and what was not searched since it is not here. */
  say(count: string, left: string, canLoad: boolean): void {
    setText(this.count, count);
    setText(this.left, left);
    this.load.hidden = !canLoad;
  }

  private find(): void {
    this.actions.find(this.box.value, this.caseButton.getAttribute('aria-pressed') === 'true');
  }

  private toggleCase(): void {
    const isOn = this.caseButton.getAttribute('aria-pressed') === 'true';
    this.caseButton.setAttribute('aria-pressed', String(!isOn));
    this.find();
  }

  private onKey(event: KeyboardEvent): void {
    if (event.key === 'Enter' && event.target === this.box) {
      event.preventDefault();
      this.actions.step(event.shiftKey);
    } else if (event.key === 'Escape') {
      event.preventDefault();
      event.stopPropagation();
      this.actions.close();
    }
  }
}
