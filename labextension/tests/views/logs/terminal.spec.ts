/** The rules of a terminal, case by case: `tests/gpulayer/test_terminal_text.py` runs the same. */
import cases from '../../../../tests/support/terminal_cases.json';
import { TAIL_ROWS } from '../../../src/views/logs/screen';
import { Terminal } from '../../../src/views/logs/terminal';

type Part = string | { hex: string } | { from: number; to: number; step: number; text: string };
type Line = string | { repeat: string; times: number; then: string } | { from: number; to: number; text: string };
interface Case {
  name: string;
  input: Part[];
  plain: Line[];
  styled?: Line[];
}

const CASES = cases as Case[];

function numbered(from: number, to: number, text: string): string[] {
  return Array.from({ length: to - from }, (_, index) => text.replaceAll('{n}', String(from + index)));
}

function bytesOf(part: Part): Uint8Array {
  if (typeof part !== 'string' && 'hex' in part) {
    return Uint8Array.from(part.hex.match(/../g) ?? [], pair => parseInt(pair, 16));
  }
  return new TextEncoder().encode(typeof part === 'string' ? part : numbered(part.from, part.to, part.text).join(''));
}

function joined(pieces: Uint8Array[]): Uint8Array {
  const whole = new Uint8Array(pieces.reduce((size, piece) => size + piece.length, 0));
  let at = 0;
  for (const piece of pieces) {
    whole.set(piece, at);
    at += piece.length;
  }
  return whole;
}

function linesOf(expected: Line[]): string[] {
  return expected.flatMap(part => {
    if (typeof part === 'string') {
      return [part];
    }
    return 'repeat' in part ? [part.repeat.repeat(part.times) + part.then] : numbered(part.from, part.to, part.text);
  });
}

function shown(pieces: Uint8Array[], keepStyles: boolean): string[] {
  const terminal = new Terminal(keepStyles);
  const decoder = new TextDecoder('utf-8', { ignoreBOM: true });
  const lines: string[] = [];
  let open: string[] = [];
  const feed = (text: string): void => {
    const final = terminal.feed(text);
    lines.push(...final);
    // What the terminal says of its open rows is enough to keep them without reading them all.
    const all = terminal.openLines();
    open = [...open.slice(final.length).slice(0, terminal.changedFrom), ...all.slice(terminal.changedFrom)];
    expect(open).toEqual(all);
  };
  pieces.forEach(piece => feed(decoder.decode(piece, { stream: true })));
  feed(decoder.decode());
  return [...lines, ...terminal.finish()];
}

test.each(CASES.map(each => [each.name, each] as const))('%s', (_, { input, plain, styled }) => {
  const pieces = input.map(bytesOf);
  const whole = joined(pieces);
  const cuts = [[whole], pieces];
  if (whole.length < 20_000) {
    cuts.push(
      Array.from({ length: Math.ceil(whole.length / 7) }, (__, index) => whole.subarray(index * 7, index * 7 + 7)),
    );
  }
  for (const cut of cuts) {
    expect(shown(cut, false)).toEqual(linesOf(plain));
    expect(shown(cut, true)).toEqual(linesOf(styled ?? plain));
  }
});

test('open lines come again until they are final', () => {
  const terminal = new Terminal();
  expect(terminal.feed('one\ntwo')).toEqual([]);
  expect(terminal.openLines()).toEqual(['one', 'two']);
  expect(terminal.feed(`\x1b[A\rONE\n${'more\n'.repeat(TAIL_ROWS)}`).slice(0, 2)).toEqual(['ONE', 'more']);
  expect(terminal.openLines()).toHaveLength(TAIL_ROWS - 1);
});

test('another attempt begins anew', () => {
  const terminal = new Terminal();
  terminal.feed('\x1b[31mred\x1b[4');
  expect(terminal.finish()).toEqual(['\x1b[31mred\x1b[0m']);
  terminal.feed('5mplain');
  expect(terminal.openLines()).toEqual(['5mplain']);
});
