/** Lines in the order in which they began, each with a number that stays; the oldest can be dropped. Knows no streams. */

/** What a line costs besides its characters: its string's header and its places in lists. */
const LINE_COST = 64;
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

  set(place: number, item: T): void {
    if (place >= this.first && place < this.end) {
      this.items[place - this.base] = item;
    }
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

export class Lines {
  /** About what is held, in bytes. */
  bytes = 0;
  private readonly texts = new Queue<string>();
  private readonly owners = new Queue<number>();

  get first(): number {
    return this.texts.first;
  }

  get end(): number {
    return this.texts.end;
  }

  add(text: string, owner: number): number {
    this.bytes += text.length + LINE_COST;
    this.owners.push(owner);
    return this.texts.push(text);
  }

  /** Whether the line is still held. */
  has(id: number): boolean {
    return id >= this.first && id < this.end;
  }

  set(id: number, text: string): void {
    this.bytes += text.length - this.text(id).length;
    this.texts.set(id, text);
  }

  text(id: number): string {
    return this.texts.at(id) ?? '';
  }

  owner(id: number): number {
    return this.owners.at(id) ?? 0;
  }

  dropBefore(id: number): void {
    for (let place = this.first; place < Math.min(id, this.end); place++) {
      this.bytes -= this.text(place).length + LINE_COST;
      this.texts.set(place, '');
    }
    this.texts.dropBefore(id);
    this.owners.dropBefore(id);
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
