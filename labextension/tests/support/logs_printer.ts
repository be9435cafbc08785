/** The other side of `logs_bench.ts`: makes the pages of logs that ranks print in turns, a few ahead of who takes them. */
import { logPage, Printing } from './fake_source';

/** What is to be printed: by every rank so many lines, or so many short lines in one page. */
export type Printed = { ranks: number; lines: number } | { onePageOf: number };

const LINES_PER_CHUNK = 500;
const RANKS_PER_PAGE = 8;
/** Pages on their way, as on a connection. */
const AHEAD = 2;

const printing = new Printing();
let pages: Iterator<string> | null = null;

self.onmessage = ({ data }: MessageEvent<Printed | null>) => {
  if (data === null) {
    send(1);
  } else {
    pages = pagesOf(data);
    send(AHEAD);
  }
};

/** The next pages; after the last of them null. */
function send(count: number): void {
  for (let page = 0; page < count && pages !== null; page++) {
    const { value, done } = pages.next();
    self.postMessage(done ? null : value);
    pages = done ? null : pages;
  }
}

function* pagesOf(asked: Printed): Generator<string> {
  if ('onePageOf' in asked) {
    yield JSON.stringify(logPage([printing.chunk('short\n'.repeat(asked.onePageOf), { rank: 0 })]));
    return;
  }
  const { ranks, lines } = asked;
  for (let from = 0; from < lines; from += LINES_PER_CHUNK) {
    for (let first = 0; first < ranks; first += RANKS_PER_PAGE) {
      const these = Array.from({ length: Math.min(RANKS_PER_PAGE, ranks - first) }, (_, index) => first + index);
      yield JSON.stringify(logPage(these.map(rank => printing.chunk(linesOf(rank, from), { rank }))));
    }
  }
}

function linesOf(rank: number, from: number): string {
  return Array.from(
    { length: LINES_PER_CHUNK },
    (_, index) => `step ${from + index} rank ${rank} loss=0.${(from + index) % 997}\n`,
  ).join('');
}
