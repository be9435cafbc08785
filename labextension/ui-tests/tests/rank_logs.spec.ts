// Logs of 64 ranks in a page of their own, far more lines than are held: how much of the browser's time each task takes while one scrolls,
// searches and changes the rank. It is processor time, which other programs on the machine do not lengthen as they do a frame.
import { execFileSync } from 'node:child_process';
import { expect, test, type Page } from '@playwright/test';

const RANKS = 64;
/** In all more than the view holds; ten times as many take no more to scroll and search, only longer to come. */
const LINES = 10_000;
const FRAME_MS = 50;
const SWITCH_MS = 200;
/** Rows in the page at any time. */
const MOST_ROWS = 250;

interface TraceEvent {
  name: string;
  pid: number;
  tid: number;
  ts: number;
  tdur?: number;
}

test('64 ranks are scrolled, searched and switched without holding up the page', async ({ page, browser }, info) => {
  await openBench(page);
  await browser.startTracing(page, {
    categories: ['toplevel', 'disabled-by-default-devtools.timeline', 'blink.user_timing'],
  });
  const measured = await page.evaluate(
    ([ranks, lines, printer]) =>
      (window as unknown as { bench: typeof import('../../tests/support/logs_bench') }).bench.measureLogs(
        document.body,
        ranks,
        lines,
        printer,
      ),
    [RANKS, LINES, bundle('../tests/support/logs_printer.ts', '--target=es2022')] as const,
  );
  const tasks = tasksOf(
    (JSON.parse((await browser.stopTracing()).toString()) as { traceEvents: TraceEvent[] }).traceEvents,
  );
  const said = [...tasks].map(
    ([part, { longest, all }]) => `${part}: longest ${longest.toFixed(0)} ms of ${all.toFixed(0)} ms`,
  );
  info.annotations.push({ type: 'tasks', description: said.join('; ') });
  expect(measured.mostRows).toBeLessThan(MOST_ROWS);
  for (const part of ['scroll', 'search', 'rank 0', 'rank 31', 'rank all']) {
    expect(tasks.get(part)?.longest, said.join('; ')).toBeLessThan(FRAME_MS);
  }
  for (const part of ['rank 0', 'rank 31', 'rank all']) {
    expect(tasks.get(part)?.all, said.join('; ')).toBeLessThan(SWITCH_MS);
  }
});

function bundle(...what: string[]): string {
  return execFileSync('../node_modules/.bin/esbuild', ['--bundle', '--log-level=error', ...what], {
    maxBuffer: 2 ** 26,
  }).toString();
}

async function openBench(page: Page): Promise<void> {
  const body = '<body class="jp-gpulayer-view" style="width: 1000px"></body>';
  await page.setContent(`<!doctype html><meta charset="utf-8"><style>${bundle('../style/views.css')}</style>${body}`);
  await page.addScriptTag({
    content: bundle('../tests/support/logs_bench.ts', '--format=iife', '--global-name=bench', '--target=es2022'),
  });
}

/** Of each part the longest task and all of them, in milliseconds of the page's main thread. */
function tasksOf(events: readonly TraceEvent[]): Map<string, { longest: number; all: number }> {
  const marks = events.filter(event => event.name.startsWith('logs: ')).sort((one, other) => one.ts - other.ts);
  const found = new Map<string, { longest: number; all: number }>();
  for (const { name, pid, tid, ts, tdur = 0 } of events) {
    const mark = marks.filter(one => one.ts <= ts).at(-1);
    if (name === 'RunTask' && mark !== undefined && mark.pid === pid && mark.tid === tid) {
      const part = mark.name.slice('logs: '.length);
      const { longest = 0, all = 0 } = found.get(part) ?? {};
      found.set(part, { longest: Math.max(longest, tdur / 1000), all: all + tdur / 1000 });
    }
  }
  return found;
}
