/** One stream of one rank, from its chunks to its lines: bytes become text, text what a terminal shows. Knows no other streams. */
import type { LogChunk, Stream } from '../../protocol';
import { Terminal } from './terminal';

/** Characters that are read in one step: a few milliseconds at worst. */
const STEP = 16_384;

/** Unfinished lines of a stream that a view keeps at its end. */
const MOST_UNFINISHED = 24;

/** Whose stream it is; the launcher's has no rank. */
export interface StreamName {
  node: number;
  rank: number | null;
  stream: Stream;
}

/** What a stream says its lines are: those before `from` are as they were, `final` of them are over. */
export interface LineSink {
  setRows(reader: StreamReader, final: readonly string[], changedFrom: number, open: readonly string[]): void;
  /** Lines that never came. */
  gap(reader: StreamReader, count: number): void;
  /** What came before is another process's. */
  attempt(reader: StreamReader, attempt: number): void;
}

export class StreamReader {
  /** The lines' own numbers of those that may still change, for whoever holds them. */
  open: number[] = [];
  /** Of those the ones that are not finished, as a bar is until it ends. */
  unfinished: number[] = [];
  /** Complete lines that were read or skipped so far, of all attempts. */
  lines = 0;
  private linesBefore = 0; // of the attempts before this one
  /** Bytes of a character that began before the first chunk. */
  lead: Uint8Array = new Uint8Array();
  private attempt = 0;
  private offset = 0;
  private terminal = new Terminal();
  private decoder = newDecoder();

  constructor(
    readonly name: StreamName,
    readonly index: number,
  ) {}

  get nextOffset(): number {
    return this.offset;
  }

  get lastAttempt(): number {
    return this.attempt;
  }

  get endsInLine(): boolean {
    return !this.terminal.atLineStart;
  }

  /** Read a chunk, step by step. */
  *read(chunk: LogChunk, sink: LineSink): Generator<void> {
    if (chunk.attempt < this.attempt) {
      return; // of a process that is gone
    }
    let data = bytesOf(chunk.data);
    if (chunk.attempt > this.attempt) {
      const isFirst = this.attempt === 0;
      this.end(sink);
      this.attempt = chunk.attempt;
      this.offset = chunk.offset;
      if (isFirst) {
        this.lines = chunk.first_line;
        const length = chunk.offset > 0 ? continuation(data) : 0;
        this.lead = data.subarray(0, length);
        this.offset += length;
        data = data.subarray(length);
      } else {
        this.linesBefore = this.lines;
        sink.attempt(this, chunk.attempt);
        if (chunk.first_line > 0) {
          this.skipTo(chunk, sink);
        }
      }
    } else if (chunk.offset > this.offset) {
      this.end(sink);
      this.skipTo(chunk, sink);
    } else {
      data = data.subarray(this.offset - chunk.offset); // what came before is known
    }
    this.offset += data.length;
    yield* this.take(data, sink);
  }

  private skipTo(chunk: LogChunk, sink: LineSink): void {
    const line = this.linesBefore + chunk.first_line;
    sink.gap(this, line - this.lines);
    this.offset = chunk.offset;
    this.lines = line;
  }

  /** Read bytes that follow what was read. */
  *take(data: Uint8Array, sink: LineSink): Generator<void> {
    for (let start = 0; start < data.length; start += STEP) {
      const piece = data.subarray(start, start + STEP);
      for (let at = piece.indexOf(10); at >= 0; at = piece.indexOf(10, at + 1)) {
        this.lines += 1;
      }
      this.feed(this.decoder.decode(piece, { stream: true }), sink);
      yield;
    }
  }

  /** Nothing more comes of this process. */
  end(sink: LineSink): void {
    const rest = this.decoder.decode();
    if (rest !== '') {
      this.feed(rest, sink);
    }
    this.terminal.finish();
    this.decoder = newDecoder();
    this.open = this.unfinished = [];
  }

  private feed(text: string, sink: LineSink): void {
    const final = this.terminal.feed(text);
    const open = this.terminal.openLines();
    sink.setRows(this, final, this.terminal.changedFrom, open);
    const from = this.terminal.unfinishedFrom();
    this.unfinished = this.open.slice(Math.max(from, open.length - MOST_UNFINISHED), Math.max(from, open.length));
  }
}

function newDecoder(): TextDecoder {
  return new TextDecoder('utf-8', { ignoreBOM: true });
}

function continuation(data: Uint8Array): number {
  let length = 0;
  while (length < 3 && ((data[length] ?? 0) & 0xc0) === 0x80) {
    length++;
  }
  return length;
}

function bytesOf(base64: string): Uint8Array {
  const text = atob(base64);
  const data = new Uint8Array(text.length);
  for (let index = 0; index < text.length; index++) {
    data[index] = text.charCodeAt(index);
  }
  return data;
}
