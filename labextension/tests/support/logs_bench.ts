/**
 * What the view of logs costs a browser: 64 ranks × 100 000 lines come, then a scripted scroll, search and change of rank.
 * Runs in a real page (`ui-tests/tests/rank_logs.spec.ts`); in jsdom nothing is drawn.
 */
import type { LogPage } from '../../src/protocol';
import { LogsView } from '../../src/views/logs/logs_view';
import { FakeSource } from './fake_source';
import type { Printed } from './logs_printer';

export interface LogsMeasured {
  /** Of the frames of each part, in milliseconds. */
  longest: Record<string, number>;
  /** How long it took until it could be seen. */
  took: Record<string, number>;
  mostRows: number;
}

/**
 * @param printerScript - `logs_printer.ts`, bundled: it makes the pages in a thread of its own, as a server does in another process, so
 * that what that takes is not counted as the view's.
 */
export async function measureLogs(
  into: HTMLElement,
  ranks: number,
  lines: number,
  printerScript: string,
): Promise<LogsMeasured> {
  const printer = new Worker(URL.createObjectURL(new Blob([printerScript])));
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
  await during('output', () => print(source, printer, { ranks, lines }));
  await during('one page of 1 MB', async () => {
    await print(source, printer, { onePageOf: 175_000 });
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
  printer.terminate();
  return measured;
}

/** Take every page that the printer has for this, each as the text that a connection brings. */
async function print(source: FakeSource, printer: Worker, asked: Printed): Promise<void> {
  let isOver = false;
  let pages: string[] = [];
  let wake = (): void => undefined;
  printer.onmessage = ({ data }: MessageEvent<string | null>) => {
    isOver = data === null;
    pages.push(...(data === null ? [] : [data]));
    wake();
  };
  printer.postMessage(asked);
  while (!isOver || pages.length > 0) {
    const [page] = pages;
    pages = pages.slice(1);
    if (page === undefined) {
      await new Promise<void>(resolve => (wake = resolve));
    } else {
      source.sendLogs(JSON.parse(page) as LogPage);
      await task(); // what waits to be read is read first
      printer.postMessage(null);
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
