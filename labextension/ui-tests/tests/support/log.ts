// All lines of a log, of which the page holds only those in sight.
import type { Locator } from '@playwright/test';

/** Scrolls from the first line to the last and gives the texts in their order. */
export async function linesOf(job: Locator): Promise<string[]> {
  return job.getByRole('log').evaluate(async log => {
    const frame = (): Promise<void> =>
      new Promise(resolve => {
        requestAnimationFrame(() => {
          requestAnimationFrame(() => {
            resolve();
          });
        });
      });
    const found = new Map<number, string>();
    log.scrollTop = 0;
    for (let before = -1; before !== log.scrollTop;) {
      await frame();
      for (const row of log.querySelectorAll<HTMLElement>('[data-place]')) {
        found.set(Number(row.dataset.place), row.querySelector('.jp-gpulayer-logs-text')?.textContent ?? '');
      }
      before = log.scrollTop;
      log.scrollTop += Math.max(1, log.clientHeight / 2);
    }
    return [...found].sort(([one], [other]) => one - other).map(([, text]) => text);
  });
}
