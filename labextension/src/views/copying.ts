/** A button that copies a text and says that it did. */
import { button } from './elements';
import type { Translator } from './source';

const SAID_MS = 2000;

export function copyButton(text: () => string, label: string, trans: Translator): HTMLButtonElement {
  const made = button(trans.__('Copy'), () => void copy(), { 'aria-label': label });
  async function copy(): Promise<void> {
    let said = trans.__('Copied');
    try {
      await navigator.clipboard.writeText(text());
    } catch {
      // Without a secure context, or where the page may not: the text can still be selected.
      said = trans.__('The browser does not allow copying');
    }
    made.textContent = said;
    made.setAttribute('aria-label', said);
    setTimeout(() => {
      made.textContent = trans.__('Copy');
      made.setAttribute('aria-label', label);
    }, SAID_MS);
  }
  return made;
}
