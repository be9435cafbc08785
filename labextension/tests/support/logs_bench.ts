/**
 * What the view of logs costs a browser: 64 ranks × 100 000 lines come, then a scripted scroll, search and change of rank.
 * Runs in a real page (`ui-tests/tests/rank_logs.spec.ts`); in jsdom nothing is drawn.
 */
import type { LogChunk } from '../../src/protocol';
import { LogsView } from '../../src/views/logs/logs_view';
import { FakeSource, logPage, Printing } from './fake_source';

export interface LogsMeasured {
  /** Of the frames of each part, in milliseconds. */
  longest: Record<string, number>;
  /** How long it took until it could be seen. */
  took: Record<string, number>;
  mostRows: number;
}

const RANKS = 64;
const LINES = 100_000;
const LINES_PER_CHUNK = 500;

export async function measureLogs(into: HTMLElement, ranks = RANKS, lines = LINES): Promise<LogsMeasured> {
  const source = new FakeSource();
  const view = new LogsView(source);
  const measured: LogsMeasured = { longest: {}, took: {}, mostRows: 0 };
  into.append(view.node);
  view.setRanks(Array.from({ length: ranks }, (_, rank) => ({ rank, phase: 'running', first: false })));
  const during = async (name: string, work: () => Promise<void>): Promise<void> => {
    const frames = watchFrames(() => {
      measured.mostRows = Math.max(measured.mostRows, view.node.querySelectorAll('.jp-gpulayer-logs-row').length);
    });
    performance.mark(`logs: ${name}`); // where its part of a recording of the browser's work begins
    const begin = performance.now();
    await work();
    measured.took[name] = performance.now() - begin;
    measured.longest[name] = frames();
  };

  while (source.logOptions.length === 0) {
    await frame(); // it asks once it is in sight
  }
  await during('output', () => print(source, ranks, lines));
  await during('one page of 1 MB', async () => {
    source.sendLogs(logPage([new Printing(10_000_000).chunk('short\n'.repeat(175_000), { rank: ranks + 1 })]));
    await settled(view);
  });
  const scroll = view.node.querySelector('.jp-gpulayer-logs-scroll') as HTMLElement;
  await during('scroll', async () => {
    for (let step = 1; step <= 120; step++) {
      scroll.scrollTop = (scroll.scrollHeight * (120 - step)) / 120 + (step % 2) * 300;
      await frame();
    }
  });
  await during('search', async () => {
    (view.node.querySelector('[aria-label^="Find in the output ("]') as HTMLElement).click();
    const box = view.node.querySelector('input') as HTMLInputElement;
    box.value = 'loss=0.77';
    box.dispatchEvent(new Event('input'));
    const count = view.node.querySelector('.jp-gpulayer-logs-count') as HTMLElement;
    while (!/ of |no match/.test(count.textContent ?? '')) {
      await frame();
    }
  });
  for (const rank of [0, 31, null]) {
    await during(`rank ${rank ?? 'all'}`, async () => {
      view.selectRank(rank);
      await frame();
      await frame();
    });
  }
  view.dispose();
  return measured;
}

/** Ranks print in turns, as fast as they are read. */
async function print(source: FakeSource, ranks: number, lines: number): Promise<void> {
  const printing = new Printing();
  const text = (rank: number, from: number): string =>
    Array.from(
      { length: LINES_PER_CHUNK },
      (_, index) => `step ${from + index} rank ${rank} loss=0.${(from + index) % 997}\n`,
    ).join('');
  for (let from = 0; from < lines; from += LINES_PER_CHUNK) {
    for (let rank = 0; rank < ranks; rank += 8) {
      const chunks: LogChunk[] = [];
      for (let each = rank; each < Math.min(ranks, rank + 8); each++) {
        chunks.push(printing.chunk(text(each, from), { rank: each }));
        await task();
      }
      source.sendLogs(logPage(chunks));
      await task();
    }
  }
}

/** The longest time between two frames, until the answer is called. */
function watchFrames(onFrame: () => void): () => number {
  let longest = 0;
  let last: number | null = null;
  let isOver = false;
  const watch = (now: number): void => {
    longest = Math.max(longest, last === null ? 0 : now - last);
    last = now;
    onFrame();
    if (!isOver) {
      requestAnimationFrame(watch);
    }
  };
  requestAnimationFrame(watch);
  return () => {
    isOver = true;
    return longest;
  };
}

async function settled(view: LogsView): Promise<void> {
  const lines = view.node.querySelector('.jp-gpulayer-logs-lines');
  let before: string | null = null;
  for (let same = 0; same < 5;) {
    await frame();
    const text = lines?.textContent ?? null;
    same = text === before ? same + 1 : 0;
    before = text;
  }
}

function frame(): Promise<void> {
  return new Promise(resolve => requestAnimationFrame(() => resolve()));
}

/** One for all: a channel for each task would leave the collector of garbage more to do than the view does. */
const tasks = new MessageChannel();
const waiting: (() => void)[] = [];
tasks.port1.onmessage = () => waiting.shift()?.();

function task(): Promise<void> {
  return new Promise(resolve => {
    waiting.push(resolve);
    tasks.port2.postMessage(null);
  });
}
