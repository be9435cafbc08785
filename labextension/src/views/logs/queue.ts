/** Ascending lists of numbered places. */

/** So many places are left empty at the front before the rest moves up. */
const SLACK = 16_384;

/** A list that loses its front. Places keep their number. */
export class Queue<T> {
  private items: T[] = [];
  private head = 0;

  constructor(private base = 0) {}

  get first(): number {
    return this.base + this.head;
  }

  get end(): number {
    return this.base + this.items.length;
  }

  at(place: number): T | undefined {
    return place < this.first ? undefined : this.items[place - this.base];
  }

  push(item: T): number {
    return this.base + this.items.push(item) - 1;
  }

  dropBefore(place: number): void {
    this.head = Math.max(this.head, Math.min(place, this.end) - this.base);
    if (this.head > SLACK || this.head === this.items.length) {
      this.items = this.items.slice(this.head);
      this.base += this.head;
      this.head = 0;
    }
  }
}

/** The place in an ascending list at which a number stands, or would stand. */
export function placeIn(at: (place: number) => number, from: number, to: number, number: number): number {
  let [low, high] = [from, to];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (at(middle) < number) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}
