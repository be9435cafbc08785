/**
 * Keys that belong to what has the focus. JupyterLab listens for its shortcuts before any element hears a key: in command
 * mode an arrow would leave a view's list for the next cell, Enter on a button would edit it, and x would cut it.
 */
import type { Subscription } from './source';

/** What JupyterLab looks for on its way up from the focus. */
const SUPPRESS = 'data-lm-suppress-shortcuts';

/** While the focus is in an element, keys without Ctrl, Alt or Meta are its own, and Ctrl+F where it finds. */
export function ownKeys(node: HTMLElement, options: { finds?: boolean } = {}): Subscription {
  const decide = (event: KeyboardEvent): void => {
    const isFind = options.finds === true && event.key === 'f' && !event.altKey && !event.shiftKey;
    const isPlain = !event.ctrlKey && !event.metaKey && !event.altKey;
    node.toggleAttribute(SUPPRESS, isPlain || isFind);
  };
  const begin = (): void => window.addEventListener('keydown', decide, true);
  const end = (): void => {
    window.removeEventListener('keydown', decide, true);
    node.removeAttribute(SUPPRESS);
  };
  node.addEventListener('focusin', begin);
  node.addEventListener('focusout', end);
  return {
    dispose: () => {
      end();
      node.removeEventListener('focusin', begin);
      node.removeEventListener('focusout', end);
    },
  };
}
