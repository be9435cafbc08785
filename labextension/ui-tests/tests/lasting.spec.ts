// What a job's view outlives: the page, the kernel, the server.
import type { Locator } from '@playwright/test';
import { expect, Notebook, openPage, test } from './support/lab';
import { linesOf } from './support/log';
import { end, untilTold } from './support/until_told';

test.use({ ownPage: true });

/** Each numbered line of a rank is there once, in order, up to the last. */
async function expectAllLines(job: Locator, rank: number): Promise<void> {
  await job.getByRole('button', { name: `Rank ${rank}` }).click();
  await expect(job.getByRole('log')).toContainText(`rank ${rank} said`);
  const lines = await linesOf(job);
  const count = Number(/said (\d+)/.exec(lines.at(-1) ?? '')?.[1]);
  expect(count).toBeGreaterThan(0);
  expect(lines.slice(0, -1)).toEqual(Array.from({ length: count }, (_none, number) => `rank ${rank} line ${number}`));
}

test(
  'a page that is reloaded at half time misses no line and has none twice',
  { tag: '@matrix' },
  async ({ notebook, page }, info) => {
    const file = info.outputPath('end');
    await notebook.begin(untilTold(file));
    await expect(notebook.job.getByRole('log')).toContainText('line 20');
    await notebook.command('docmanager:save');
    await page.reload();
    await notebook.isReady();
    await expect(notebook.job.getByRole('log')).toContainText('line');
    await end(file);
    await expect(notebook.job).toContainText('succeeded');
    await expectAllLines(notebook.job, 0);
    await expectAllLines(notebook.job, 1);
  },
);

test('the view goes on when the kernel is restarted', async ({ notebook, page }, info) => {
  const file = info.outputPath('end');
  // A kernel whose cell blocks is interrupted first, and an interrupt stops the job.
  await notebook.begin(untilTold(file));
  await expect(notebook.job.getByRole('log')).toContainText('line 10');
  await page.menu.clickMenuItem('Kernel>Restart Kernel…');
  await page.getByRole('dialog').getByRole('button', { name: 'Confirm Kernel Restart' }).click();
  await expect(page.getByRole('dialog')).toHaveCount(0);
  await expect(notebook.job).toContainText('running');
  await end(file);
  await expect(notebook.job).toContainText('succeeded');
  await expectAllLines(notebook.job, 0);
  await notebook.run('"the kernel is there again"');
});

test('the view recovers when the Jupyter server is restarted', async ({ lab, notebook, page }, info) => {
  const file = info.outputPath('end');
  // JupyterLab says that its server is away; what is under that is the view's.
  const away = page.getByRole('dialog', { name: /Server Connection Error/ });
  await page.addLocatorHandler(away, () => away.getByRole('button').last().click());
  await notebook.begin(untilTold(file));
  await expect(notebook.job.getByRole('log')).toContainText('line 10');
  await lab.restart();
  await end(file);
  await expect(notebook.job).toContainText('succeeded', { timeout: 60_000 });
  await expectAllLines(notebook.job, 1);
});

test('a saved notebook shows its job without a kernel', async ({ notebook, lab, window }) => {
  await notebook.run('%%gpulayer\nprint("kept")\n');
  await expect(notebook.job).toContainText('succeeded');
  await notebook.command('docmanager:save');
  await notebook.endKernel();
  const later = new Notebook(await openPage(window, lab), lab, 'lab', notebook.name);
  await later.page.routeWebSocket(/api\/kernels/, socket => socket.close());
  await later.page.route(/api\/sessions/, route => route.abort());
  await later.open();
  await expect(later.job).toContainText('succeeded');
  await expect(later.job.getByRole('log')).toContainText('kept');
  await expect(later.page.locator('.jp-Notebook')).not.toContainText('Loading widget');
  await later.page.close();
});

test('where no WebSocket comes through, polls bring the same', async ({ notebook, page }) => {
  await page.routeWebSocket(/gpulayer\/v1\/stream/, socket => socket.close());
  await page.reload();
  await notebook.isReady();
  await notebook.run('%%gpulayer\nfor number in range(300):\n    print(f"line {number}", flush=True)\n');
  await expect(notebook.job).toContainText('succeeded');
  await expect(notebook.job.getByRole('log')).toContainText('line 299');
  expect(await linesOf(notebook.job)).toEqual(Array.from({ length: 300 }, (_none, number) => `line ${number}`));
});
