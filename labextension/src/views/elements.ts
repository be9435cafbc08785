/** Makes elements of what views say. User text goes in as text only, so that none of it is ever markup. */

export type Child = Node | string | null | undefined | false;
export type Attributes = Record<string, string | number | boolean | null | undefined>;

const SVG = 'http://www.w3.org/2000/svg';

/** An element with attributes and children; attributes that are null, undefined or false are left out. */
export function element<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  attributes: Attributes = {},
  ...children: Child[]
): HTMLElementTagNameMap[K] {
  const made = document.createElement(tag);
  setAttributes(made, attributes);
  append(made, children);
  return made;
}

export function svg(tag: string, attributes: Attributes = {}, ...children: Child[]): SVGElement {
  const made = document.createElementNS(SVG, tag);
  setAttributes(made, attributes);
  append(made, children);
  return made;
}

/** A button with a text; `type` is set, since a form around an output would be sent by it. While it is busy a click does nothing. */
export function button(
  text: string,
  onClick: (event: MouseEvent) => void,
  attributes: Attributes = {},
): HTMLButtonElement {
  const made = element('button', { type: 'button', class: 'jp-gpulayer-button', ...attributes }, text);
  made.addEventListener('click', event => {
    if (made.getAttribute('aria-disabled') !== 'true') {
      onClick(event);
    }
  });
  return made;
}

/** What it did last is not over. It is not `disabled`: that would take the focus from whoever pressed it by keyboard. */
export function setBusy(made: HTMLButtonElement, isBusy: boolean): void {
  made.setAttribute('aria-disabled', String(isBusy));
}

/** Leave the focus here where what had it is gone: the next Tab goes on from here. A click does not focus it. */
export function leaveFocusAt(target: HTMLElement): void {
  target.tabIndex = -1;
  target.focus({ preventScroll: true });
  target.addEventListener('blur', () => target.removeAttribute('tabindex'), { once: true });
}

/** Change the text of an element only where it differs: a selection inside it stays, and nothing is read aloud again. */
export function setText(target: Element, text: string): void {
  if (target.textContent !== text) {
    target.textContent = text;
  }
}

/** A sentence of ours whose parts in backticks are code. */
export function sentence(text: string): DocumentFragment {
  const parts = document.createDocumentFragment();
  text.split('`').forEach((part, index, all) => {
    const isCode = index % 2 === 1 && index < all.length - 1;
    if (isCode) {
      parts.append(element('code', {}, part));
    } else if (part || index % 2 === 1) {
      parts.append(index % 2 === 1 ? `\`${part}` : part);
    }
  });
  return parts;
}

let lastId = 0;
/** The views are on one page twice where a widget lies beside an output that the extension draws. */
const PAGE_PART = Math.random().toString(36).slice(2, 8);

/** An id that no other element of the page has. */
export function uniqueId(name: string): string {
  lastId += 1;
  return `jp-gpulayer-${name}-${PAGE_PART}-${lastId}`;
}

/** Whether a click is the second of a double one: what a button has become meanwhile was not meant. */
export function isRepeated(event: MouseEvent): boolean {
  return event.detail > 1;
}

function setAttributes(made: Element, attributes: Attributes): void {
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== null && value !== undefined && value !== false) {
      made.setAttribute(name, value === true ? '' : String(value));
    }
  }
}

function append(made: Element, children: Child[]): void {
  for (const child of children) {
    if (child !== null && child !== undefined && child !== false) {
      made.append(child);
    }
  }
}
