/**
 * What is held of a job's output: the lines of all streams in the order in which they began, bounded in bytes, the oldest
 * going first. Pages are read in slices. Knows no DOM; `shown_lines.ts` has what one rank's view shows of it.
 */
import type { LogChunk, LogPage } from '../../protocol';
import { Lines } from './lines';
import { Queue, placeIn } from './queue';
import { SlicedWork, type Scheduler } from './scheduler';
import { StreamReader, type LineSink, type StreamName } from './stream_reader';

/** Of one job, in a tab that may show several. */
const LIMIT_BYTES = 48_000_000;
/** As many rows have room in a page: browsers lay out no more than some millions of pixels. */
const LIMIT_LINES = 400_000;
/** Of pages that wait to be read, as they came. Where more comes at once than that, the oldest is skipped. */
const BACKLOG_CHARACTERS = 24_000_000;
/** After dropping this share of the limit is held, so that not every line drops one. */
const KEPT_SHARE = 0.95;

export type LineKind = 'line' | 'gap' | 'attempt';
const KINDS: readonly LineKind[] = ['line', 'gap', 'attempt'];

/** A line, or in its place what is to be said: how many lines are missing, or which attempt begins. */
export interface Line {
  text: string;
  kind: LineKind;
  name: StreamName;
}

/** A line that is none of the job's but says something of them. */
export interface Note {
  id: number;
  rank: number | null;
  /** Its place among the lines of its rank. */
  placeOfRank: number;
  /** How many lines of the job it stands for. */
  lines: number;
}

/** Where a chunk's lines begin. */
export interface Bound {
  first: number;
  sequence: number;
  firstLine: number;
  offset: number;
  /** Bytes at its beginning that belong to a character of the chunk before it. */
  lead: () => Uint8Array;
}

export class LogModel implements LineSink {
  readonly lines = new Lines();
  readonly readers: StreamReader[] = [];
  /** Of the lines that are held. */
  notes: Note[] = [];
  /** Nothing more comes. */
  isComplete = false;
  /** Somebody reads from here on: up to twice the limit is held before these lines go. */
  keepFrom: number | null = null;

  private readonly byName = new Map<string, StreamReader>();
  private readonly ofRank = new Map<number, Queue<number>>();
  private readonly bounds = new Queue<{ index: number; bound: Bound }>();
  private readonly boundsOf: Queue<Bound>[] = [];
  private readonly backlog = new Queue<LogChunk>();
  private backlogSize = 0;
  private lastSequence = 0;
  private reading: Generator<void> | null = null;
  private changed = new Set<number>();
  private readonly listeners = new Set<(changed: ReadonlySet<number>) => void>();
  private readonly work: SlicedWork;

  constructor(
    readonly scheduler: Scheduler,
    private readonly limitBytes = LIMIT_BYTES,
    private readonly backlogCharacters = BACKLOG_CHARACTERS,
    private readonly limitLines = LIMIT_LINES,
  ) {
    this.work = new SlicedWork(
      scheduler,
      () => this.step(),
      () => this.tell(),
    );
  }

  add(page: LogPage): void {
    for (const chunk of page.chunks) {
      if (chunk.sequence > this.lastSequence) {
        this.lastSequence = chunk.sequence;
        this.backlog.push(chunk);
        this.backlogSize += chunk.data.length;
      }
    }
    while (this.backlogSize > this.backlogCharacters && this.backlog.end - this.backlog.first > 1) {
      this.takeChunk(); // its reader finds the gap
    }
    this.isComplete ||= page.complete;
    this.work.wake();
  }

  /** Told after each slice, with the lines that changed besides those that are new. */
  onChange(on: (changed: ReadonlySet<number>) => void): { dispose(): void } {
    this.listeners.add(on);
    return { dispose: () => this.listeners.delete(on) };
  }

  dispose(): void {
    this.work.dispose();
    this.listeners.clear();
  }

  line(id: number): Line {
    return this.lineOf(this.lines.text(id), this.lines.owner(id));
  }

  lineOf(text: string, owner: number): Line {
    const name = this.readers[Math.floor(owner / KINDS.length)]?.name ?? { node: 0, rank: null, stream: 'stdout' };
    return { text, kind: KINDS[owner % KINDS.length] ?? 'line', name };
  }

  /** The lines that are not finished, rank by rank; once all has come, there are none. */
  unfinished(): number[] {
    if (this.isComplete && this.reading === null && this.backlog.first === this.backlog.end) {
      return [];
    }
    return this.readers
      .filter(reader => reader.unfinished.length > 0)
      .sort((one, other) => (one.name.rank ?? -1) - (other.name.rank ?? -1) || one.index - other.index)
      .flatMap(reader => reader.unfinished.filter(id => this.lines.has(id)));
  }

  /** A rank's lines, in their order. */
  linesOfRank(rank: number): Queue<number> {
    let ids = this.ofRank.get(rank);
    if (ids === undefined) {
      ids = new Queue<number>();
      this.ofRank.set(rank, ids);
    }
    return ids;
  }

  /** The first chunk of a stream whose lines are held; with none, of any. */
  firstBound(reader: StreamReader | null): Bound | undefined {
    if (reader === null) {
      return this.bounds.at(this.bounds.first)?.bound;
    }
    const own = this.boundsOf[reader.index];
    return own?.at(own.first);
  }

  readerOf(name: StreamName): StreamReader {
    const key = `${name.node} ${name.rank} ${name.stream}`;
    let reader = this.byName.get(key);
    if (reader === undefined) {
      reader = new StreamReader(name, this.readers.length);
      this.byName.set(key, reader);
      this.readers.push(reader);
      this.boundsOf.push(new Queue<Bound>());
    }
    return reader;
  }

  // ---- what readers say

  setRows(reader: StreamReader, final: readonly string[], changedFrom: number, open: readonly string[]): void {
    const owner = ownerOf(reader, 'line');
    const ids = reader.open;
    for (let row = 0; row < final.length; row++) {
      ids[row] = this.put(ids[row], final[row] ?? '', reader, owner);
    }
    for (let row = Math.min(changedFrom, Math.max(0, ids.length - final.length)); row < open.length; row++) {
      const place = final.length + row;
      ids[place] = this.put(ids[place], open[row] ?? '', reader, owner);
    }
    for (let place = final.length + open.length; place < ids.length; place++) {
      this.put(ids[place], '', reader, owner); // the cursor left it; what comes next is written there
    }
    reader.open = ids.slice(final.length);
  }

  gap(reader: StreamReader, count: number): void {
    this.note(String(count), reader, 'gap', count);
  }

  attempt(reader: StreamReader, attempt: number): void {
    this.note(String(attempt), reader, 'attempt', 0);
  }

  private note(text: string, reader: StreamReader, kind: LineKind, lines: number): void {
    const { rank } = reader.name;
    const placeOfRank = rank === null ? 0 : this.linesOfRank(rank).end;
    this.notes.push({ id: this.append(text, reader, ownerOf(reader, kind)), rank, placeOfRank, lines });
  }

  private put(id: number | undefined, text: string, reader: StreamReader, owner: number): number {
    if (id === undefined || !this.lines.has(id)) {
      return this.append(text, reader, owner);
    }
    if (this.lines.text(id) !== text) {
      this.setText(id, text);
    }
    return id;
  }

  setText(id: number, text: string): void {
    this.lines.set(id, text);
    this.changed.add(id);
  }

  private append(text: string, reader: StreamReader, owner: number): number {
    const id = this.lines.add(text, owner);
    if (reader.name.rank !== null) {
      this.linesOfRank(reader.name.rank).push(id);
    }
    return id;
  }

  // ---- reading

  private step(): boolean {
    if (this.reading?.next().done === false) {
      return true;
    }
    this.reading = null;
    this.trim();
    const chunk = this.takeChunk();
    if (chunk === undefined) {
      return false;
    }
    const reader = this.readerOf({ node: chunk.node, rank: chunk.rank, stream: chunk.stream });
    const isFirst = reader.lastAttempt === 0;
    const bound: Bound = {
      first: this.lines.end,
      sequence: chunk.sequence,
      firstLine: isFirst ? chunk.first_line : reader.lines, // lines that are skipped before it are said below this bound
      offset: chunk.offset,
      lead: () => (isFirst ? reader.lead : new Uint8Array()),
    };
    this.bounds.push({ index: reader.index, bound });
    this.boundsOf[reader.index]?.push(bound);
    this.reading = reader.read(chunk, this);
    return true;
  }

  private takeChunk(): LogChunk | undefined {
    const chunk = this.backlog.at(this.backlog.first);
    if (chunk !== undefined) {
      this.backlogSize -= chunk.data.length;
      this.backlog.dropBefore(this.backlog.first + 1);
    }
    return chunk;
  }

  /** Whole chunks go, so that what is missing begins where a page can end. */
  private trim(): void {
    const { lines, bounds } = this;
    const holdsMoreThan = (share: number): boolean =>
      lines.bytes > this.limitBytes * share || lines.end - lines.first > this.limitLines * share;
    if (!holdsMoreThan(1)) {
      return;
    }
    const before = lines.first;
    while (holdsMoreThan(KEPT_SHARE) && bounds.end - bounds.first > 1) {
      const next = bounds.at(bounds.first + 1)?.bound.first ?? lines.end;
      if (this.keepFrom !== null && next > this.keepFrom && !holdsMoreThan(2)) {
        break;
      }
      const own = this.boundsOf[bounds.at(bounds.first)?.index ?? 0];
      own?.dropBefore(own.first + 1);
      bounds.dropBefore(bounds.first + 1);
      lines.dropBefore(next);
    }
    if (lines.first > before) {
      this.notes = this.notes.filter(note => note.id >= lines.first);
      for (const ids of this.ofRank.values()) {
        ids.dropBefore(placeIn(place => ids.at(place) ?? 0, ids.first, ids.end, lines.first));
      }
    }
  }

  private tell(): void {
    const changed = this.changed;
    this.changed = new Set();
    this.listeners.forEach(on => on(changed));
  }
}

export function ownerOf(reader: StreamReader, kind: LineKind): number {
  return reader.index * KINDS.length + KINDS.indexOf(kind);
}
