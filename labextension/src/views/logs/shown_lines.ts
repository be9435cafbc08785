/**
 * The lines that a view shows: of all ranks or of one, those that are held and, above them, pages that were loaded for it.
 * Each line has a place, a whole number that stays while it is shown; the next line has the next. Positions are where lines
 * stand: their places, but that unfinished lines stand last, as a terminal keeps a bar below what is printed. Knows no DOM.
 */
import type { JobSource } from '../source';
import { ownerOf, type Line, type LineKind, type LogModel } from './model';
import { placeIn } from './queue';
import { LiftedPlaces } from './lifted_places';
import { LINE_COST } from './lines';
import { SlicedWork } from './scheduler';
import { StreamReader, type LineSink } from './stream_reader';

/** Of one page that is loaded when one scrolls up. */
const PAGE_BYTES = 512 * 1024;
/** Of all such pages; what lies farther up can be downloaded. */
const EARLIER_LIMIT = 24_000_000;

interface EarlierRow {
  text: string;
  owner: number;
}

/** A line that stands for several of the job's, or for none. */
interface NumberedNote {
  place: number;
  lines: number;
}

/** Where what is shown of a stream begins. */
interface Beginning {
  offset: number;
  firstLine: number;
  lead: Uint8Array;
  row: EarlierRow | null;
}

export class ShownLines {
  isLoading = false;
  /** What went wrong when earlier lines were asked for. */
  failure: string | null = null;

  private earlier: EarlierRow[] = [];
  private earlierNotes: NumberedNote[] = [];
  private joint = 0; // the place of the first line that the model holds, when the earlier ones were put before it
  private before: number | null = null;
  private begins = new Map<number, Beginning>();
  private isWhole = false;
  private earlierBytes = 0;
  private readonly lifted = new LiftedPlaces();

  constructor(
    private readonly model: LogModel,
    private readonly source: JobSource,
    readonly rank: number | null,
  ) {}

  get first(): number {
    return this.firstHeld - this.earlier.length;
  }

  get end(): number {
    return this.rank === null ? this.model.lines.end : this.model.linesOfRank(this.rank).end;
  }

  line(place: number): Line {
    const held = this.firstHeld;
    if (place < held) {
      const row = this.earlier[this.earlier.length - (held - place)];
      return this.model.lineOf(row?.text ?? '', row?.owner ?? 0);
    }
    return this.model.line(this.idAt(place));
  }

  /** The model's number of the line at a place; of one that was loaded, of the first that is held. */
  idAt(place: number): number {
    const held = Math.max(place, this.firstHeld);
    return this.rank === null ? held : (this.model.linesOfRank(this.rank).at(held) ?? this.model.lines.end);
  }

  /** The place of one of the model's lines; null where it is not shown. */
  placeOf(id: number): number | null {
    if (this.rank === null) {
      return id >= this.firstHeld ? id : null;
    }
    const ids = this.model.linesOfRank(this.rank);
    const place = placeIn(at => ids.at(at) ?? 0, ids.first, ids.end, id);
    return ids.at(place) === id ? place : null;
  }

  /** Have the lines that are unfinished at the moment stand last. */
  arrange(): void {
    const places = this.model.unfinished().map(id => this.placeOf(id));
    this.lifted.set(places.filter(place => place !== null));
  }

  positionOf(place: number): number {
    return this.lifted.positionOf(place, this.end);
  }

  placeAt(position: number): number {
    return this.lifted.placeAt(position, this.end);
  }

  /** How many complete lines are not shown since they came before. */
  get earlierLines(): number {
    let lines = 0;
    for (const reader of this.readers()) {
      lines += this.begins.get(reader.index)?.firstLine ?? this.model.firstBound(reader)?.firstLine ?? reader.lines;
    }
    return lines;
  }

  /** What people count lines as, from 1: those that were skipped count too, and what is said between lines does not. */
  numbering(): (place: number) => number {
    const start = this.earlierLines + 1 - this.first;
    const held = this.model.notes
      .filter(note => this.rank === null || note.rank === this.rank)
      .map(note => ({ place: this.rank === null ? note.id : note.placeOfRank, lines: note.lines }));
    const notes = [...this.earlierNotes, ...held];
    return place => {
      let number = start + place;
      for (const note of notes) {
        number += note.place < place ? note.lines - 1 : 0;
      }
      return number;
    };
  }

  /** Whether there may be lines before those that are shown. */
  get hasEarlier(): boolean {
    const before = this.firstSequence();
    return !this.isWhole && before !== null && before > 1 && (this.earlierLines > 0 || this.isUncertain());
  }

  /** Whether earlier lines can be loaded; else they can only be downloaded. */
  get canLoad(): boolean {
    return this.hasEarlier && this.earlierBytes < EARLIER_LIMIT;
  }

  /** Load the page before; `done` when it is shown. */
  async loadEarlier(done: () => void): Promise<void> {
    const before = this.firstSequence();
    if (this.isLoading || before === null || !this.canLoad) {
      return;
    }
    this.isLoading = true;
    this.failure = null;
    try {
      const page = await this.source.earlierLogs({ rank: this.rank, before, limitBytes: PAGE_BYTES });
      const reading = new EarlierPage(this.model, page.chunks);
      await reading.read();
      if (before === this.firstSequence()) {
        this.put(reading, page.chunks[0]?.sequence ?? null);
      }
    } catch (error) {
      // Of whatever kind: the person who asked for the lines is told.
      this.failure = error instanceof Error ? error.message : String(error);
    } finally {
      this.isLoading = false;
      done();
    }
  }

  /** The oldest lines that are held went: pages before them would have a hole behind them. */
  checkJoint(): void {
    if (this.earlier.length > 0 && this.joint !== this.firstHeld) {
      this.earlier = [];
      this.earlierNotes = [];
      this.earlierBytes = 0;
      this.begins.clear();
      this.before = null;
      this.isWhole = false;
    }
  }

  private get firstHeld(): number {
    return this.rank === null ? this.model.lines.first : this.model.linesOfRank(this.rank).first;
  }

  private readers(): StreamReader[] {
    return this.rank === null
      ? this.model.readers
      : this.model.readers.filter(reader => reader.name.rank === this.rank);
  }

  /** A stream of which nothing has come may have printed before. */
  private isUncertain(): boolean {
    return this.rank === null || this.readers().length < 2;
  }

  private firstSequence(): number | null {
    if (this.before !== null) {
      return this.before;
    }
    const bounds = this.rank === null ? [] : this.readers().map(reader => this.model.firstBound(reader));
    const own = bounds.filter(bound => bound !== undefined).map(bound => bound.sequence);
    return own.length > 0 ? Math.min(...own) : (this.model.firstBound(null)?.sequence ?? null);
  }

  private put(page: EarlierPage, sequence: number | null): void {
    if (sequence === null) {
      this.isWhole = true;
      return;
    }
    for (const reader of page.readers.values()) {
      this.join(page, reader);
    }
    const rows = page.rows.filter(row => !page.joined.has(row));
    this.joint = this.firstHeld;
    this.earlier = [...rows, ...this.earlier];
    this.earlierBytes += rows.reduce((size, row) => size + row.text.length + LINE_COST, 0);
    const notes = rows.flatMap((row, index) => {
      const { kind } = this.model.lineOf(row.text, row.owner);
      return kind === 'line' ? [] : [{ place: this.first + index, lines: kind === 'gap' ? Number(row.text) : 0 }];
    });
    this.earlierNotes = [...notes, ...this.earlierNotes];
    this.before = sequence;
    this.isWhole = sequence <= 1;
  }

  /** Where the page ends within a line, that line is one with the first of what follows. */
  private join(page: EarlierPage, reader: StreamReader): void {
    const held = this.model.readers[reader.index];
    const bound = held && this.model.firstBound(held);
    const next = this.begins.get(reader.index) ?? (bound && { ...bound, lead: bound.lead(), row: null });
    if (next?.offset === reader.nextOffset) {
      page.readAll(reader.take(next.lead, page));
      const last = page.rowOf(reader);
      if (reader.endsInLine && last) {
        if (next.row) {
          next.row.text = last.text + next.row.text;
          page.joined.add(last);
        } else if (bound && this.model.lines.owner(bound.first) === last.owner && this.model.lines.has(bound.first)) {
          this.model.setText(bound.first, last.text + this.model.lines.text(bound.first));
          page.joined.add(last);
        }
      }
    }
    const begin = page.begins.get(reader.index);
    if (begin) {
      const row =
        page.rows.find(each => each.owner === ownerOf(reader, 'line') && !page.joined.has(each)) ?? next?.row ?? null;
      this.begins.set(reader.index, { ...begin, lead: reader.lead, row });
    }
  }
}

/** Reads one page by itself: what a terminal shows of it alone. */
class EarlierPage implements LineSink {
  readonly rows: EarlierRow[] = [];
  readonly joined = new Set<EarlierRow>();
  readonly readers = new Map<number, StreamReader>();
  readonly begins = new Map<number, { offset: number; firstLine: number }>();
  private readonly lastRow = new Map<number, number>();

  constructor(
    private readonly model: LogModel,
    private readonly chunks: Awaited<ReturnType<JobSource['earlierLogs']>>['chunks'],
  ) {}

  read(): Promise<void> {
    const steps = this.steps();
    return new Promise(resolve => {
      const work = new SlicedWork(this.model.scheduler, () => {
        const isMore = steps.next().done === false;
        if (!isMore) {
          resolve();
        }
        return isMore;
      });
      work.wake();
    });
  }

  readAll(steps: Generator<void>): void {
    while (steps.next().done === false);
  }

  rowOf(reader: StreamReader): EarlierRow | undefined {
    return this.rows[this.lastRow.get(reader.index) ?? -1];
  }

  setRows(reader: StreamReader, final: readonly string[], changedFrom: number, open: readonly string[]): void {
    const ids = reader.open;
    const owner = ownerOf(reader, 'line');
    const put = (place: number, text: string): void => {
      const row = this.rows[ids[place] ?? -1];
      if (row) {
        row.text = text;
      } else {
        ids[place] = this.rows.push({ text, owner }) - 1;
      }
    };
    final.forEach((text, row) => put(row, text));
    for (let row = Math.min(changedFrom, Math.max(0, ids.length - final.length)); row < open.length; row++) {
      put(final.length + row, open[row] ?? '');
    }
    const last = ids[final.length + open.length - 1];
    if (last !== undefined) {
      this.lastRow.set(reader.index, last);
    }
    reader.open = ids.slice(final.length);
  }

  gap(reader: StreamReader, count: number): void {
    this.note(reader, 'gap', count);
  }

  attempt(reader: StreamReader, attempt: number): void {
    this.note(reader, 'attempt', attempt);
  }

  private note(reader: StreamReader, kind: LineKind, number: number): void {
    this.rows.push({ text: String(number), owner: ownerOf(reader, kind) });
  }

  private *steps(): Generator<void> {
    for (const chunk of this.chunks) {
      const name = { node: chunk.node, rank: chunk.rank, stream: chunk.stream };
      const { index } = this.model.readerOf(name);
      let reader = this.readers.get(index);
      if (reader === undefined) {
        reader = new StreamReader(name, index);
        this.readers.set(index, reader);
        this.begins.set(index, { offset: chunk.offset, firstLine: chunk.first_line });
      }
      yield* reader.read(chunk, this);
    }
  }
}
