/** Work that a store puts off, done when a test says so; time moves by itself with each look at the clock. */
import type { Schedule } from '../../src/views/metrics/metric_store';

export class HandSchedule implements Schedule {
  soonWork: (() => void)[] = [];
  laterWork: (() => void)[] = [];
  slices = 0;
  private time = 0;

  soon(work: () => void): void {
    this.soonWork.push(work);
  }

  later(work: () => void): void {
    this.laterWork.push(work);
  }

  now(): number {
    this.time += 1;
    return this.time;
  }

  /** Do all that waits, the soon before the later. */
  run(): void {
    while (this.soonWork.length || this.laterWork.length) {
      this.slices += this.soonWork.length;
      const work = this.soonWork.length ? this.soonWork : this.laterWork;
      work.splice(0).forEach(one => one());
    }
  }
}
