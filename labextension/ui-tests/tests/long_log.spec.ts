// A hundred thousand lines: drawn, scrolled and searched, with a page that stays small. How long frames take is printed, and bounded only
// where a person would take the page for dead; benchmarks hold figures.
import type { Locator } from '@playwright/test';
import { expect, test } from './support/lab';
import { measured } from './support/frames';

const DEAD_MS = 1_000;
const MOST_ELEMENTS = 3_000;

test('100,000 lines are drawn, scrolled and searched', async ({ notebook, page }, info) => {
  await notebook.run(`%%gpulayer
for number in range(100_000):
    print(f"line {number}: the quick brown fox")
`);
  const { job } = notebook;
  const log = job.getByRole('log');
  await expect(job).toContainText('succeeded');
  await expect(job).toContainText(/100.000 lines/);
  await expect(log).toContainText('line 99999:');
  const size = (): Promise<number> => job.evaluate(node => node.querySelectorAll('*').length);
  expect(await size()).toBeLessThan(MOST_ELEMENTS);

  const frames = await measured(page, async () => {
    await scrollThrough(log);
    await job.getByRole('button', { name: /^Find in the output/ }).click();
    await page.keyboard.type('line 7777');
    // 77770 to 77779 and 7777; some of them lie before what the page has.
    await expect(job).toContainText(/of 1[01]/);
    await page.keyboard.press('Enter');
    await page.keyboard.press('Enter');
    await expect(log).toContainText('line 7777');
  });
  expect(await size()).toBeLessThan(MOST_ELEMENTS);
  const said = `${frames.count} frames, longest ${frames.longestMs.toFixed(0)} ms, ${frames.over50} over 50 ms, ${frames.longTasks} long tasks`;
  info.annotations.push({ type: 'frames', description: said });
  await info.attach('frames', { body: JSON.stringify(frames), contentType: 'application/json' });
  console.log(`    ${said}`);
  expect(frames.longestMs).toBeLessThan(DEAD_MS);
});

/** To the first line that the page has, and back, a part of it each frame. */
async function scrollThrough(log: Locator): Promise<void> {
  await log.evaluate(async node => {
    const frame = (): Promise<void> =>
      new Promise(resolve => {
        requestAnimationFrame(() => {
          resolve();
        });
      });
    for (const way of [-1, 1]) {
      const step = (way * (node.scrollHeight - node.clientHeight)) / 60;
      for (let turn = 0; turn < 60; turn += 1) {
        node.scrollTop += step;
        await frame();
      }
    }
  });
}
