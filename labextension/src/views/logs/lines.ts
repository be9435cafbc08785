/** Lines in the order in which they began, each with a number that stays; the oldest can be dropped. Knows no streams. */
import { Queue } from './queue';
import { Texts } from './texts';

/** What a line costs besides its characters: its string's header and its places in lists. */
export const LINE_COST = 64;

export class Lines {
  /** About what is held, in bytes. */
  bytes = 0;
  private readonly texts = new Texts();
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
    return this.texts.at(id);
  }

  owner(id: number): number {
    return this.owners.at(id) ?? 0;
  }

  dropBefore(id: number): void {
    for (let place = this.first; place < Math.min(id, this.end); place++) {
      this.bytes -= this.text(place).length + LINE_COST;
    }
    this.texts.dropBefore(id);
    this.owners.dropBefore(id);
  }
}
