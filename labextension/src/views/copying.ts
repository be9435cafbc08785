/** A button that copies a text and says that it did. */
import { button, type Attributes } from './elements';
import type { Translator } from './source';

const SAID_MS = 2000;

/**
 * @param label - what is copied, for those who do not see where the button stands.
 * @param words - what stands on it; without it, `Copy`.
 */
export function copyButton(
  text: () => string,
  label: string,
  trans: Translator,
  words = trans.__('Copy'),
  attributes: Attributes = {},
): HTMLButtonElement {
  const made = button(words, () => void copy(), { 'aria-label': label, ...attributes });
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
      made.textContent = words;
      made.setAttribute('aria-label', label);
    }, SAID_MS);
  }
  return made;
}
