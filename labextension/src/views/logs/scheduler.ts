/** When work is done: in slices that leave the browser its frames. Tests drive it by hand. Knows nothing of logs. */

export interface Scheduler {
  /** Milliseconds. */
  now(): number;
  /** Run after what the browser has to do first. */
  soon(work: () => void): void;
  /** Run before the next frame is drawn; while nobody looks, not at all. */
  frame(work: () => void): void;
}

/** Of a slice. With what else a frame has to do it stays below 50 ms on a slow machine too. */
const SLICE_MS = 8;

let channel: MessageChannel | null = null;
const waiting: (() => void)[] = [];

export const browserScheduler: Scheduler = {
  now: () => performance.now(),
  soon: work => {
    // A timer would wait 4 ms between slices, and a second in a tab that nobody looks at.
    if (channel === null) {
      channel = new MessageChannel();
      channel.port1.onmessage = () => waiting.shift()?.();
    }
    waiting.push(work);
    channel.port2.postMessage(null);
  },
  frame: work => {
    requestAnimationFrame(work);
  },
};

/** Work of many short steps, done in slices while there is any. */
export class SlicedWork {
  private isPlanned = false;
  private isDisposed = false;

  /** @param step - does a little; false where nothing is left. */
  constructor(
    private readonly scheduler: Scheduler,
    private readonly step: () => boolean,
    private readonly afterSlice: () => void = () => undefined,
  ) {}

  /** There is work. */
  wake(): void {
    if (!this.isPlanned && !this.isDisposed) {
      this.isPlanned = true;
      this.scheduler.soon(() => this.run());
    }
  }

  dispose(): void {
    this.isDisposed = true;
  }

  private run(): void {
    this.isPlanned = false;
    if (this.isDisposed) {
      return;
    }
    const end = this.scheduler.now() + SLICE_MS;
    let isMore = true;
    while (isMore && this.scheduler.now() < end) {
      isMore = this.step();
    }
    this.afterSlice();
    if (isMore) {
      this.wake();
    }
  }
}
