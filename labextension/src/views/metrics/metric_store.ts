/**
 * All metrics of a job as they come in. Pages are worked through in slices, so that two million points hold up nothing;
 * views hear of changes a few times a second. Knows no DOM.
 */
import type { MetricBatch, MetricPage } from '../../protocol';
import { MetricSeries, type Axis } from './metric_series';
import type { Subscription } from '../source';

/** Of one metric and rank; a chart is seldom more pixels wide. */
export const MOST_BUCKETS = 1024;
const FEWEST_BUCKETS = 64;
/** Of all metrics and ranks together: some 20 MB. */
const ALL_BUCKETS = 500_000;
export const MOST_METRICS = 500;
/** A frame has 16 ms; the rest of it is others'. */
const SLICE_MS = 6;
const POINTS_BETWEEN_LOOKS = 40;
const TELL_MS = 200;

/** When work goes on; tests have their own. */
export interface Schedule {
  soon(work: () => void): void;
  later(work: () => void, ms: number): void;
  now(): number;
}

const BROWSER: Schedule = {
  soon: work => void setTimeout(work, 0),
  later: (work, ms) => void setTimeout(work, ms),
  now: () => performance.now(),
};

export class MetricStore {
  readonly series = new Map<string, MetricSeries>();
  received = 0;
  kept = 0;
  lost = 0;
  /** Names beyond `MOST_METRICS`, which are not drawn. */
  readonly leftOut = new Set<string>();
  attempt = 0;
  readonly schedule: Schedule;
  private readonly waiting: MetricBatch[] = [];
  private readonly listeners = new Set<() => void>();
  private point = 0;
  private works = false;
  private tells = false;
  private isOver = false;
  private most = MOST_BUCKETS;
  private pointsSinceLook = 0;
  private begin: number | null = null;

  constructor(schedule: Schedule = BROWSER) {
    this.schedule = schedule;
  }

  /** Take a page; it is looked at a little later, piece by piece. */
  add(page: MetricPage): void {
    this.waiting.push(...page.batches);
    this.received = Math.max(this.received, page.received);
    this.kept = page.kept;
    this.lost = page.lost;
    if (!this.works && this.waiting.length) {
      this.works = true;
      this.schedule.soon(() => this.work());
    } else if (!this.waiting.length) {
      this.tell();
    }
  }

  /** Nothing is left to be looked at. */
  get isIdle(): boolean {
    return !this.waiting.length;
  }

  onChange(on: () => void): Subscription {
    this.listeners.add(on);
    return { dispose: () => this.listeners.delete(on) };
  }

  dispose(): void {
    this.isOver = true;
    this.waiting.length = 0;
    this.listeners.clear();
  }

  private work(): void {
    const end = this.schedule.now() + SLICE_MS;
    let points = 0;
    while (this.waiting.length && !this.isOver) {
      const batch = this.waiting[0];
      if (batch && this.startsOrGoesOn(batch)) {
        while (this.point < batch.points.length) {
          this.addPoint(batch, this.point);
          this.point += 1;
          points += 1;
          if (points % POINTS_BETWEEN_LOOKS === 0 && this.schedule.now() > end) {
            this.tell();
            this.schedule.soon(() => this.work());
            return;
          }
        }
      }
      this.waiting.shift();
      this.point = 0;
    }
    this.works = false;
    this.keepToRoom();
    this.tell();
  }

  /** Of an attempt before the newest nothing is drawn: its steps began at the same place. */
  private startsOrGoesOn(batch: MetricBatch): boolean {
    if (batch.attempt > this.attempt) {
      this.attempt = batch.attempt;
      this.series.clear();
      this.begin = null;
    }
    return batch.attempt === this.attempt;
  }

  private addPoint(batch: MetricBatch, index: number): void {
    const point = batch.points[index];
    if (!point) {
      return;
    }
    const [rank, step, time, values] = point;
    this.begin ??= time;
    const x = step ?? Math.max(0, time - this.begin);
    const axis: Axis = step === null ? 'time' : 'step';
    for (const name in values) {
      const value = values[name];
      const series = value === undefined ? null : this.seriesOf(name, axis);
      if (series !== null && value !== undefined) {
        series.add(rank, x, value);
      }
    }
    this.pointsSinceLook += 1;
    if (this.pointsSinceLook >= 20_000) {
      this.keepToRoom();
    }
  }

  private seriesOf(name: string, axis: Axis): MetricSeries | null {
    // A name that is said with a step and without has a chart of each: they have no axis in common.
    const key = axis === 'step' ? name : `${name}\u0000time`;
    const known = this.series.get(key);
    if (known) {
      return known;
    }
    if (this.series.size >= MOST_METRICS) {
      this.leftOut.add(name);
      return null;
    }
    const made = new MetricSeries(name, axis, this.most);
    this.series.set(key, made);
    return made;
  }

  private keepToRoom(): void {
    this.pointsSinceLook = 0;
    const all = (): number => [...this.series.values()].reduce((sum, series) => sum + series.buckets, 0);
    while (this.most > FEWEST_BUCKETS && all() > ALL_BUCKETS) {
      this.most /= 2;
      for (const series of this.series.values()) {
        series.limit(this.most);
      }
    }
  }

  private tell(): void {
    if (this.tells) {
      return;
    }
    this.tells = true;
    this.schedule.later(() => {
      this.tells = false;
      if (!this.isOver) {
        this.listeners.forEach(on => on());
      }
    }, TELL_MS);
  }
}
