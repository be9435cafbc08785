import { LogModel } from '../../../src/views/logs/model';
import { plainText, patternOf, Search } from '../../../src/views/logs/search';
import { ShownLines } from '../../../src/views/logs/shown_lines';
import { FakeSource, logPage, Printing } from '../../support/fake_source';
import type { LogChunk } from '../../../src/protocol';
import { HandScheduler } from './hand_scheduler';

function setUp(limit?: number, backlog?: number, limitLines?: number) {
  const scheduler = new HandScheduler();
  const model = new LogModel(scheduler, limit, backlog, limitLines);
  const source = new FakeSource();
  const printing = new Printing();
  const shown = (rank: number | null = null): ShownLines => new ShownLines(model, source, rank);
  const add = (...chunks: LogChunk[]): void => {
    model.add(logPage(chunks));
    scheduler.run();
  };
  return { scheduler, model, source, printing, shown, add };
}

function texts(lines: ShownLines): string[] {
  return Array.from({ length: lines.end - lines.first }, (_, index) => lines.line(lines.first + index).text);
}

function matchesOf(search: Search): (number | undefined)[] {
  return Array.from({ length: search.count }, (_, index) => search.at(index));
}

test('lines of all ranks stand in the order in which they began', () => {
  const { printing, shown, add } = setUp();
  add(
    printing.chunk('a0\na', { rank: 0 }),
    printing.chunk('b0\n', { rank: 1 }),
    printing.chunk('1\nwarning\n', { rank: 0, stream: 'stderr' }),
    printing.chunk('launching\n', { rank: null }),
    printing.chunk('1\na2', { rank: 0 }),
  );
  expect(texts(shown())).toEqual(['a0', 'a1', 'b0', '1', 'warning', 'launching', 'a2']);
  expect(texts(shown(0))).toEqual(['a0', 'a1', '1', 'warning', 'a2']);
  expect(texts(shown(1))).toEqual(['b0']);
  expect(shown(0).line(2).name).toEqual({ node: 0, rank: 0, stream: 'stderr' });
});

test('characters that chunks cut are whole', () => {
  const { printing, shown, add } = setUp();
  const data = new TextEncoder().encode('训练 🚀\n');
  add(...Array.from(data, byte => printing.chunk(Uint8Array.of(byte))));
  expect(texts(shown())).toEqual(['训练 🚀']);
});

test('bars of many ranks are drawn over, each in its place', () => {
  const { printing, shown, add } = setUp();
  for (let step = 0; step <= 100; step++) {
    add(
      ...[0, 1].map(rank => printing.chunk(`\r${step}%${step === 100 ? '\ndone\n' : ''}`, { rank, stream: 'stderr' })),
    );
  }
  expect(texts(shown())).toEqual(['100%', '100%', 'done', 'done']);
  expect(texts(shown(1))).toEqual(['100%', 'done']);
});

test('what comes again is not shown again', () => {
  const { printing, shown, add } = setUp();
  const chunks = [printing.chunk('one\n'), printing.chunk('two\n')];
  add(...chunks);
  add(...chunks, printing.chunk('three\n'));
  expect(texts(shown())).toEqual(['one', 'two', 'three']);
});

test('what never came is counted in its place', () => {
  const { printing, shown, add } = setUp();
  add(printing.chunk('one\nhal'));
  printing.chunk('f\nthree\nfour\n');
  add(printing.chunk('five\n'));
  expect(texts(shown())).toEqual(['one', 'hal', '3', 'five']);
  expect(shown().line(2).kind).toBe('gap');
});

test('another attempt begins a line, and what is late of the one before is left out', () => {
  const { printing, shown, add } = setUp();
  const late = printing.chunk('late\n', { attempt: 1 });
  add({ ...late, sequence: 1, offset: 0, data: btoa('\x1b[31m45%|bar') }, printing.chunk('again\n', { attempt: 2 }), {
    ...late,
    sequence: 9,
  });
  expect(texts(shown())).toEqual(['\x1b[31m45%|bar\x1b[0m', '2', 'again']);
  expect(shown().line(1).kind).toBe('attempt');
});

test('a page is read in slices', () => {
  const { model, printing, scheduler, shown } = setUp();
  scheduler.perLook = 5;
  model.add(logPage([printing.chunk('short\n'.repeat(100_000))]));
  scheduler.slice();
  expect(shown().end).toBeLessThan(10_000);
  scheduler.run();
  expect(shown().end).toBe(100_000);
  expect(scheduler.slices).toBeGreaterThan(10);
});

test('what is held is bounded, the oldest goes, and what went is counted', () => {
  const { model, printing, shown, add } = setUp(50_000);
  const rank0 = shown(0);
  for (let step = 0; step < 200; step++) {
    add(
      printing.chunk(`rank 0, line ${step}\n`.repeat(10)),
      printing.chunk(`rank 1, line ${step}\n`.repeat(10), { rank: 1 }),
    );
  }
  expect(model.lines.bytes).toBeLessThanOrEqual(50_000);
  expect(rank0.earlierLines + rank0.end - rank0.first).toBe(2000);
  expect(rank0.numbering()(rank0.end - 1)).toBe(2000);
  expect(rank0.line(rank0.end - 1).text).toBe('rank 0, line 199');
  expect(shown().earlierLines + shown().end - shown().first).toBe(4000);
  expect(rank0.hasEarlier).toBe(true);
});

test('what somebody reads is kept, up to twice the bound', () => {
  const { model, printing, add } = setUp(20_000);
  add(printing.chunk('read\n'));
  model.keepFrom = 0;
  add(...Array.from({ length: 300 }, () => printing.chunk('more\n')));
  expect(model.lines.first).toBe(0);
  add(...Array.from({ length: 600 }, () => printing.chunk('more\n')));
  expect(model.lines.first).toBeGreaterThan(0);
  expect(model.lines.bytes).toBeLessThanOrEqual(40_000);
});

test('of more than can be read the newest is shown, and what was skipped is said', () => {
  const { model, printing, scheduler, shown } = setUp(undefined, 10_000);
  model.add(logPage(Array.from({ length: 100 }, (_, step) => printing.chunk(`${step}\n`.repeat(100)))));
  model.add(logPage([printing.chunk('last\n')]));
  scheduler.run();
  const lines = shown();
  expect(lines.line(lines.end - 1).text).toBe('last');
  expect(lines.earlierLines + lines.end - lines.first).toBe(10_001);
  expect(lines.hasEarlier).toBe(true);
});

test('pages before are put in front, and a line and a character that were cut are whole', async () => {
  const { printing, shown, add, source, scheduler } = setUp();
  const data = new TextEncoder().encode('one\ntwo\nthree 训练\nfour\n');
  const early = [
    printing.chunk('other\n', { rank: 1 }),
    printing.chunk(data.subarray(0, 3)),
    printing.chunk(data.subarray(3, 15)),
  ];
  add(printing.chunk(data.subarray(15)));
  source.earlier = async ({ before }) => logPage(early.filter(chunk => chunk.sequence < before).slice(-2));
  const lines = shown();
  expect(lines.earlierLines).toBe(2);
  const load = async (): Promise<void> => {
    const done = lines.loadEarlier(() => undefined);
    await scheduler.settle();
    await done;
  };
  await load();
  expect(texts(lines)).toEqual(['one', 'two', 'three 训练', 'four']);
  expect(lines.numbering()(lines.first)).toBe(1);
  await load();
  expect(texts(lines)).toEqual(['other', 'one', 'two', 'three 训练', 'four']);
  expect(lines.hasEarlier).toBe(false);
  expect(source.earlierAsked.map(asked => asked.before)).toEqual([4, 2]);
});

test('what could not be loaded is said', async () => {
  const { printing, shown, add, source } = setUp();
  printing.chunk('one\n');
  add(printing.chunk('two\n'));
  source.earlier = () => Promise.reject(new Error('the server is away'));
  const lines = shown();
  await lines.loadEarlier(() => undefined);
  expect(lines.failure).toBe('the server is away');
  expect(lines.isLoading).toBe(false);
  expect(texts(lines)).toEqual(['two']);
});

test('lines that were skipped count in numbers, and what is said between lines does not', () => {
  const { model, printing, shown, add } = setUp(60_000);
  const numbers = (lines: ShownLines): Record<string, number> => {
    const numberOf = lines.numbering();
    return Object.fromEntries(texts(lines).map((text, index) => [text, numberOf(lines.first + index)]));
  };
  const [all, one] = [shown(), shown(1)];
  add(printing.chunk('a\n', { rank: 0 }), printing.chunk('b\n', { rank: 1 }));
  printing.chunk('lost\n'.repeat(12), { rank: 1 });
  add(printing.chunk('c\n', { rank: 1 }), printing.chunk('d\n', { rank: 0 }));
  expect(numbers(all)).toMatchObject({ a: 1, b: 2, c: 15, d: 16 });
  expect(numbers(one)).toMatchObject({ b: 1, c: 14 });
  add(printing.chunk('e\n', { rank: 1, attempt: 2 }));
  expect(numbers(all)).toMatchObject({ e: 17 });
  // The same when lines before them, and then they themselves, are no longer held.
  for (let step = 0; step < 200; step++) {
    add(printing.chunk(`filler ${step}\n`.repeat(10), { rank: 0 }));
    expect(numbers(all)[`filler ${step}`]).toBe(17 + 10 * (step + 1));
  }
  expect(model.notes).toEqual([]);
});

test('no more lines are held than a page has room for', () => {
  const { model, printing, shown, add } = setUp(undefined, undefined, 1000);
  const lines = shown();
  for (let step = 0; step < 30; step++) {
    add(printing.chunk('x\n'.repeat(100)));
  }
  expect(lines.end - lines.first).toBeLessThanOrEqual(1100);
  expect(lines.numbering()(lines.end - 1)).toBe(3000);
  model.keepFrom = lines.first;
  for (let step = 0; step < 30; step++) {
    add(printing.chunk('x\n'.repeat(100)));
  }
  expect(lines.end - lines.first).toBeGreaterThan(1500);
  expect(lines.end - lines.first).toBeLessThanOrEqual(2100);
});

test('the search goes on as lines come, change and go', () => {
  const { printing, shown, add, scheduler } = setUp(60_000);
  const lines = shown();
  const search = new Search(scheduler, lines, () => undefined);
  add(printing.chunk('Loss 1\nacc\n\x1b[31mlo\x1b[0mss 2\n'));
  search.begin(lines, patternOf('loss', false));
  scheduler.run();
  expect(matchesOf(search)).toEqual([0, 2]);
  search.begin(lines, patternOf('loss', true));
  scheduler.run();
  expect(matchesOf(search)).toEqual([2]);
  add(printing.chunk('\rno\nloss 3\n'));
  search.goOn();
  scheduler.run();
  expect(matchesOf(search)).toEqual([2, 4]);
  expect(search.next(3, false)).toBe(1);
  expect(search.next(2, true)).toBe(1);
  add(printing.chunk('\x1b[A\x1b[2Knone\n'));
  search.changed(4);
  expect(matchesOf(search)).toEqual([2]);
  for (let step = 0; step < 200; step++) {
    add(printing.chunk('filler line\n'.repeat(10)));
  }
  search.goOn();
  scheduler.run();
  expect(matchesOf(search)).toEqual([]);
  expect(search.isDone).toBe(true);
});

test('a text is found as it is, whatever characters it has', () => {
  expect('a.b(c'.match(patternOf('.b(', true) ?? /$^/)?.[0]).toBe('.b(');
  expect(plainText('\x1b[1;31mred\x1b[0m')).toBe('red');
});
