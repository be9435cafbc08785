/** Shows one long line whole, wrapped. */
import { copyButton } from '../copying';
import { button, element } from '../elements';
import type { Translator } from '../source';

export class WholeLine {
  readonly node: HTMLElement;
  private readonly text: HTMLElement;
  private before: Element | null = null;

  constructor(trans: Translator) {
    this.text = element('pre', {
      class: 'jp-gpulayer-logs-whole-text',
      tabindex: 0,
      'aria-label': trans.__('The whole line'),
    });
    this.node = element(
      'div',
      { class: 'jp-gpulayer-logs-whole', role: 'group', 'aria-label': trans.__('The whole line') },
      element(
        'div',
        { class: 'jp-gpulayer-logs-whole-bar' },
        copyButton(() => this.text.textContent ?? '', trans.__('Copy the whole line'), trans),
        button(trans.__('Close'), () => this.close(), { 'aria-label': trans.__('Close the whole line') }),
      ),
      this.text,
    );
    this.node.addEventListener('keydown', event => {
      if (event.key === 'Escape') {
        event.stopPropagation();
        this.close();
      }
    });
    this.node.hidden = true;
  }

  show(text: string): void {
    this.before = document.activeElement;
    this.text.textContent = text;
    this.node.hidden = false;
    this.text.focus();
  }

  private close(): void {
    this.node.hidden = true;
    this.text.textContent = '';
    if (this.before instanceof HTMLElement && this.before.isConnected) {
      this.before.focus();
    }
  }
}
