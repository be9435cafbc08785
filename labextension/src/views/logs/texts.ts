/**
 * Very many short texts. Those that have stood for a while are held as one string for each thousand: a browser's collector
 * of garbage looks at every string that there is, and half a million of them hold up the page.
 */
import { Queue } from './queue';

const BLOCK = 1024;
/** The newest that many blocks are left as they are: open lines change. */
const OPEN_BLOCKS = 16;

export class Texts {
  first = 0;
  end = 0;
  private readonly blocks = new Queue<Block>();

  push(text: string): number {
    const number = Math.floor(this.end / BLOCK);
    if (number === this.blocks.end) {
      this.blocks.push(new Block());
      this.blocks.at(number - OPEN_BLOCKS)?.pack();
    }
    this.blocks.at(number)?.push(text);
    return this.end++;
  }

  /** The text at a place; "" where there is none, or none any more. */
  at(place: number): string {
    return place < this.first ? '' : (this.blocks.at(Math.floor(place / BLOCK))?.at(place % BLOCK) ?? '');
  }

  set(place: number, text: string): void {
    this.blocks.at(Math.floor(place / BLOCK))?.set(place % BLOCK, text);
  }

  dropBefore(place: number): void {
    this.first = Math.max(this.first, Math.min(place, this.end));
    this.blocks.dropBefore(Math.floor(this.first / BLOCK));
  }
}

class Block {
  private texts: string[] | null = [];
  private joined = '';
  private ends = new Uint32Array();

  push(text: string): void {
    this.texts?.push(text);
  }

  at(index: number): string | undefined {
    return this.texts ? this.texts[index] : this.joined.slice(this.ends[index - 1] ?? 0, this.ends[index]);
  }

  set(index: number, text: string): void {
    this.texts ??= Array.from(this.ends, (end, each) => this.joined.slice(this.ends[each - 1] ?? 0, end));
    this.texts[index] = text;
  }

  pack(): void {
    let end = 0;
    this.ends = Uint32Array.from(this.texts ?? [], text => (end += text.length));
    this.joined = this.texts?.join('') ?? '';
    this.texts = null;
  }
}
