/** Colours of the page's theme for what is drawn on a canvas, and when they change. */
import type { Subscription } from './source';

const ATTRIBUTES = [
  'class',
  'style',
  'theme',
  'data-theme',
  'data-jp-theme-name',
  'data-jp-theme-light',
  'data-vscode-theme-kind',
];
const QUERIES = ['(prefers-color-scheme: dark)', '(forced-colors: active)'];

const listeners = new Set<() => void>();
let watched: (() => void) | null = null;

/** Tell when the theme may have changed; front ends say it by attributes of the page, browsers by media queries. */
export function onThemeChange(on: () => void): Subscription {
  listeners.add(on);
  watched ??= watch();
  return {
    dispose: () => {
      listeners.delete(on);
      if (!listeners.size) {
        watched?.();
        watched = null;
      }
    },
  };
}

function watch(): () => void {
  const tell = (): void => listeners.forEach(on => on());
  const observer = new MutationObserver(tell);
  for (const target of [document.documentElement, document.body]) {
    observer.observe(target, { attributes: true, attributeFilter: ATTRIBUTES });
  }
  const queries = QUERIES.map(query => window.matchMedia(query));
  queries.forEach(query => query.addEventListener('change', tell));
  return () => {
    observer.disconnect();
    queries.forEach(query => query.removeEventListener('change', tell));
  };
}

/** Reads custom properties as colours that a canvas takes: a property by itself may be a formula of others. */
export class Inks {
  private readonly probe: HTMLElement;
  private readonly known = new Map<string, string>();

  /** @param probe - an element of the view, which is not seen. */
  constructor(probe: HTMLElement) {
    this.probe = probe;
  }

  get(property: string): string {
    let known = this.known.get(property);
    if (known === undefined) {
      this.probe.style.color = `var(${property})`;
      known = getComputedStyle(this.probe).color || 'gray';
      this.known.set(property, known);
    }
    return known;
  }

  /** Read all again; true where any has changed. */
  refresh(): boolean {
    const before = [...this.known];
    this.known.clear();
    return before.filter(([property, colour]) => this.get(property) !== colour).length > 0;
  }
}

const LINE_INKS = 8;

/** The property with the colour of a line; of many they repeat. */
export function lineInk(number: number): string {
  return `--gpulayer-line-${((number % LINE_INKS) + LINE_INKS) % LINE_INKS}`;
}
