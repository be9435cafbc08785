// What jsdom lacks of a browser and the modules under test ask for when they are loaded.
import { TextDecoder, TextEncoder } from 'node:util';

Object.assign(globalThis, { TextDecoder, TextEncoder });
window.matchMedia ??= (query: string) =>
  ({
    matches: false,
    media: query,
    addEventListener: () => undefined,
    removeEventListener: () => undefined,
    addListener: () => undefined,
    removeListener: () => undefined,
  }) as unknown as MediaQueryList;
globalThis.ResizeObserver ??= class {
  observe(): void {}
  unobserve(): void {}
  disconnect(): void {}
};
globalThis.DragEvent ??= class extends MouseEvent {} as unknown as typeof DragEvent; // @lumino/widgets asks for it when it is loaded
window.requestIdleCallback ??= (work: IdleRequestCallback) =>
  window.setTimeout(() => work({ didTimeout: true, timeRemaining: () => 0 }));
