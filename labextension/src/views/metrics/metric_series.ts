/**
 * One metric's values, rank by rank, in bounded room: past a number of places neighbouring ones are put together into
 * buckets of twice the width, which keep the least, the mean and the most. Knows no DOM.
 *
 * All ranks of a metric have the same width, so that what one bucket holds can be compared over ranks.
 */
import type { MetricValue } from '../../protocol';

/** What happened in a bucket besides numbers. */
export const NAN = 1;
export const PLUS_INF = 2;
export const MINUS_INF = 4;

const FIRST_ROOM = 32;

/** One rank's buckets, in ascending order. */
export class RankSeries {
  length = 0;
  index = new Float64Array(FIRST_ROOM);
  sum = new Float64Array(FIRST_ROOM);
  low = new Float64Array(FIRST_ROOM);
  high = new Float64Array(FIRST_ROOM);
  count = new Uint32Array(FIRST_ROOM);
  flags = new Uint8Array(FIRST_ROOM);
  /** As the rank said them, the newest. */
  last: MetricValue = 'nan';
  lastX = 0;

  /** Where a bucket is, or is to be. */
  find(index: number): number {
    let [from, to] = [0, this.length];
    if (to > 0 && (this.index[to - 1] ?? 0) < index) {
      return to; // points come in order, nearly always
    }
    while (from < to) {
      const middle = (from + to) >> 1;
      if ((this.index[middle] ?? 0) < index) {
        from = middle + 1;
      } else {
        to = middle;
      }
    }
    return from;
  }

  add(index: number, value: MetricValue): void {
    const at = this.find(index);
    if (at === this.length || this.index[at] !== index) {
      this.insert(at, index);
    }
    if (typeof value === 'number') {
      this.sum[at] = (this.sum[at] ?? 0) + value;
      this.low[at] = Math.min(this.low[at] ?? 0, value);
      this.high[at] = Math.max(this.high[at] ?? 0, value);
      this.count[at] = (this.count[at] ?? 0) + 1;
    } else {
      this.flags[at] = (this.flags[at] ?? 0) | (value === 'nan' ? NAN : value === 'inf' ? PLUS_INF : MINUS_INF);
    }
  }

  /** The mean of a bucket; null where it holds no number. */
  mean(at: number): number | null {
    const count = this.count[at] ?? 0;
    return count ? (this.sum[at] ?? 0) / count : null;
  }

  /** Put together buckets that have the same index when the width is doubled. */
  halve(): void {
    let kept = -1;
    for (let at = 0; at < this.length; at += 1) {
      const index = Math.floor((this.index[at] ?? 0) / 2);
      if (kept >= 0 && this.index[kept] === index) {
        this.sum[kept] = (this.sum[kept] ?? 0) + (this.sum[at] ?? 0);
        this.low[kept] = Math.min(this.low[kept] ?? 0, this.low[at] ?? 0);
        this.high[kept] = Math.max(this.high[kept] ?? 0, this.high[at] ?? 0);
        this.count[kept] = (this.count[kept] ?? 0) + (this.count[at] ?? 0);
        this.flags[kept] = (this.flags[kept] ?? 0) | (this.flags[at] ?? 0);
      } else {
        kept += 1;
        this.index[kept] = index;
        // Column by column: a list of them, made for each bucket, is what this would take most of its time for.
        this.sum[kept] = this.sum[at] ?? 0;
        this.low[kept] = this.low[at] ?? 0;
        this.high[kept] = this.high[at] ?? 0;
        this.count[kept] = this.count[at] ?? 0;
        this.flags[kept] = this.flags[at] ?? 0;
      }
    }
    this.length = kept + 1;
  }

  private insert(at: number, index: number): void {
    if (this.length === this.index.length) {
      this.grow();
    }
    if (at < this.length) {
      for (const column of [this.index, this.sum, this.low, this.high, this.count, this.flags]) {
        column.copyWithin(at + 1, at, this.length);
      }
    }
    this.index[at] = index;
    this.sum[at] = 0;
    this.low[at] = Infinity;
    this.high[at] = -Infinity;
    this.count[at] = 0;
    this.flags[at] = 0;
    this.length += 1;
  }

  private grow(): void {
    const room = this.length * 2;
    const wider = <T extends Float64Array | Uint32Array | Uint8Array>(made: T, column: T): T => {
      made.set(column);
      return made;
    };
    this.index = wider(new Float64Array(room), this.index);
    this.sum = wider(new Float64Array(room), this.sum);
    this.low = wider(new Float64Array(room), this.low);
    this.high = wider(new Float64Array(room), this.high);
    this.count = wider(new Uint32Array(room), this.count);
    this.flags = wider(new Uint8Array(room), this.flags);
  }
}

/** How a metric's values lie: by the step that they were said for, or by time where none was said. */
export type Axis = 'step' | 'time';

const FIRST_WIDTH: Record<Axis, number> = { step: 1, time: 1 / 64 };

export class MetricSeries {
  readonly name: string;
  readonly axis: Axis;
  readonly ranks = new Map<number, RankSeries>();
  /** Of a bucket, in steps or seconds. */
  width: number;
  /** Grows with each change. */
  version = 0;
  private most: number;

  constructor(name: string, axis: Axis, most: number) {
    this.name = name;
    this.axis = axis;
    this.width = FIRST_WIDTH[axis];
    this.most = most;
  }

  add(rank: number, x: number, value: MetricValue): void {
    let series = this.ranks.get(rank);
    if (!series) {
      series = new RankSeries();
      this.ranks.set(rank, series);
    }
    series.add(Math.floor(x / this.width), value);
    series.last = value;
    series.lastX = x;
    this.version += 1;
    while (series.length > this.most) {
      this.halve();
    }
  }

  /** Keep to fewer buckets a rank from here on. */
  limit(most: number): void {
    this.most = most;
    while ([...this.ranks.values()].some(series => series.length > most)) {
      this.halve();
    }
  }

  get buckets(): number {
    let all = 0;
    for (const series of this.ranks.values()) {
      all += series.length;
    }
    return all;
  }

  /** The step or second at which a bucket begins. */
  at(index: number): number {
    return index * this.width;
  }

  private halve(): void {
    this.width *= 2;
    for (const series of this.ranks.values()) {
      series.halve();
    }
    this.version += 1;
  }
}
