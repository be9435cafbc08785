/** What jsdom lacks of a canvas: a context that takes every call and draws nothing, and sizes. For charts; uPlot is the real one. */
const context = new Proxy({} as Record<string, unknown>, {
  get: (target, name) => (name === 'measureText' ? () => ({ width: 10 }) : (target[String(name)] ?? (() => undefined))),
  set: (target, name, value) => {
    target[String(name)] = value;
    return true;
  },
});

export function giveCanvas(): void {
  HTMLCanvasElement.prototype.getContext = (() => context) as unknown as HTMLCanvasElement['getContext'];
  Object.assign(globalThis, {
    Path2D: class {
      moveTo(): void {}
      lineTo(): void {}
      rect(): void {}
      arc(): void {}
      closePath(): void {}
      addPath(): void {}
    },
  });
}
