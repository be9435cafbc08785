/** A scheduler that a test drives by hand. */
import type { Scheduler } from '../../../src/views/logs/scheduler';

/** As time passes from one frame to the next. */
const FRAME_MS = 16;

export class HandScheduler implements Scheduler {
  /** Milliseconds that pass with each look at the clock. */
  perLook = 0;
  slices = 0;
  private time = 0;
  private works: (() => void)[] = [];
  private frames: (() => void)[] = [];

  now(): number {
    this.time += this.perLook;
    return this.time;
  }

  soon(work: () => void): void {
    this.works.push(work);
  }

  frame(work: () => void): void {
    this.frames.push(work);
  }

  /** One slice. */
  slice(): boolean {
    const work = this.works.shift();
    this.slices += work ? 1 : 0;
    work?.();
    return work !== undefined;
  }

  /** The next frame. */
  nextFrame(): void {
    this.time += FRAME_MS;
    const frames = this.frames;
    this.frames = [];
    frames.forEach(frame => frame());
  }

  /** All slices, then a frame, until nothing is left. */
  run(): void {
    do {
      while (this.slice());
      this.nextFrame();
    } while (this.works.length + this.frames.length > 0);
  }

  /** As `run`, between the answers of promises too. */
  async settle(): Promise<void> {
    for (let turn = 0; turn < 10; turn++) {
      this.run();
      await Promise.resolve();
    }
  }
}
