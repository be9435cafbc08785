/** Lines that are not finished, as bars: where they are drawn, and that all else holds meanwhile. */
import type { LogChunk } from '../../../src/protocol';
import { LogsView } from '../../../src/views/logs/logs_view';
import { FakeSource, logPage, Printing } from '../../support/fake_source';
import { HandScheduler } from './hand_scheduler';

let view: LogsView;
let source: FakeSource;
let scheduler: HandScheduler;
let printing: Printing;

beforeEach(() => {
  globalThis.ResizeObserver = class {
    observe(): void {}
    unobserve(): void {}
    disconnect(): void {}
  };
  source = new FakeSource();
  scheduler = new HandScheduler();
  printing = new Printing();
  view = new LogsView(source, scheduler);
  document.body.append(view.node);
  scheduler.run();
});

afterEach(() => view.dispose());

function send(...chunks: LogChunk[]): void {
  source.sendLogs(logPage(chunks));
  scheduler.run();
}

function one<T extends HTMLElement>(selector: string): T {
  const found = view.node.querySelector<T>(selector);
  if (!found) {
    throw new Error(`nothing is ${selector}`);
  }
  return found;
}

const scroller = (): HTMLElement => one('.jp-gpulayer-logs-scroll');
const rows = (): HTMLElement[] => [...view.node.querySelectorAll<HTMLElement>('.jp-gpulayer-logs-row')];
const textsOf = (part: string): (string | null)[] =>
  rows().map(row => row.querySelector(`.jp-gpulayer-logs-${part}`)?.textContent ?? null);
const texts = (): (string | null)[] => textsOf('text');
const numbers = (): (string | null)[] => textsOf('number');

test('a bar is drawn below what is printed until it ends', () => {
  const bar = { stream: 'stderr' } as const;
  send(printing.chunk('\r 0%', bar), printing.chunk('one\ntwo\n'), printing.chunk('\r50%', bar));
  const row = rows()[2];
  expect(texts()).toEqual(['one', 'two', '50%']);
  expect(numbers()).toEqual(['2', '3', '1']);
  send(printing.chunk('three\n'), printing.chunk('\r99%', bar));
  expect(texts()).toEqual(['one', 'two', 'three', '99%']);
  expect(rows()[3]).toBe(row);
  expect(rows().map(each => each.style.top)).toEqual(['0px', '18px', '36px', '54px']);
  one('[aria-label^="Find in the output ("]').click();
  const box = one<HTMLInputElement>('.jp-gpulayer-logs-box');
  box.value = '%';
  box.dispatchEvent(new Event('input'));
  scheduler.run();
  expect(one('.jp-mod-current .jp-gpulayer-logs-text').textContent).toBe('99%');
  send(printing.chunk('\r100%\n', bar));
  expect(texts()).toEqual(['100%', 'one', 'two', 'three']);
  expect(numbers()).toEqual(['1', '2', '3', '4']);
});

test('a bar that goes back to the beginning of its line is not finished by that', () => {
  send(printing.chunk('50%\r', { stream: 'stderr' }), printing.chunk('one\n'));
  expect(texts()).toEqual(['one', '50%']);
  send(printing.chunk('\x1b[K\x1b[K100%\n', { stream: 'stderr' }));
  expect(texts()).toEqual(['100%', 'one']);
});

test('the bars of ranks are drawn last, rank by rank, those of several lines whole', () => {
  view.setRanks([0, 1, 2].map(rank => ({ rank, phase: 'running', first: false })));
  const ofRank = (rank: number, text: string): LogChunk => printing.chunk(text, { rank, stream: 'stderr' });
  send(
    ofRank(2, '\rtwo'),
    ofRank(0, 'outer\n'),
    ofRank(0, 'inner\x1b[A\r'),
    printing.chunk('said\n', { rank: 1 }),
    ofRank(1, '\rone'),
  );
  expect(texts()).toEqual(['said', 'outer', 'inner', 'one', 'two']);
  view.selectRank(0);
  send(printing.chunk('more\n', { rank: 0 }));
  expect(texts()).toEqual(['more', 'outer', 'inner']);
  source.sendLogs(logPage([], true));
  scheduler.run();
  expect(texts()).toEqual(['outer', 'inner', 'more']);
});

test('what one reads stays in its place when a bar above it ends', () => {
  const bar = { stream: 'stderr' } as const;
  send(printing.chunk('\r 0%', bar), printing.chunk('line\n'.repeat(1000)));
  scroller().scrollTop = 5000;
  scroller().dispatchEvent(new Event('scroll'));
  scheduler.run();
  send(printing.chunk('\r100%\n', bar));
  expect(scroller().scrollTop).toBe(5018);
});
