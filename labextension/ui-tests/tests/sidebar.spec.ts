// The list of jobs beside the notebook.
import type { Locator } from '@playwright/test';
import { expect, showJobs, test } from './support/lab';

const ENDLESS = `%%gpulayer --nodes 1 --devices 2
import threading
print("up", flush=True)
threading.Event().wait(600)
`;

test('a running job is listed, and stopped from there', { tag: '@matrix' }, async ({ lab, notebook, page }) => {
  await notebook.begin(ENDLESS);
  await expect(notebook.job).toContainText('running');
  const jobs = await showJobs(page);
  const row = jobs.getByRole('listitem').first();
  await expect(row).toContainText('running');
  await expect(row).toContainText('2 × cpu');
  await expect(row).toContainText(/\d\d:\d\d:\d\d · j\w+/);
  await row.getByRole('button', { name: /^Stop/ }).click();
  await page.getByRole('dialog').getByRole('button', { name: 'Stop' }).click();
  await expect(row).toContainText('cancelled');
  await expect(notebook.job).toContainText('cancelled');
  await notebook.hasEnded();
  await expect.poll(() => lab.devicesHeld()).toBe(0);
});

test.describe('panels', () => {
  test.use({ ownPage: true });

  test('a job opens in a panel, and is there again after a reload', async ({ notebook, page }) => {
    await notebook.run('%%gpulayer\nprint("done")\n');
    await expect(notebook.job).toContainText('succeeded');
    const jobs = await showJobs(page);
    const saved = page.waitForRequest(
      request =>
        request.method() === 'PUT' &&
        /workspaces/.test(request.url()) &&
        !!request.postData()?.includes('gpulayer-job:'),
    );
    await jobs.getByRole('listitem').first().getByRole('button').first().click();
    const panel = page.locator('.jp-gpulayer-job-panel');
    await expect(panel).toContainText('succeeded');
    const bottomOf = async (of: Locator): Promise<number> => of.evaluate(node => node.getBoundingClientRect().bottom);
    const left = (await bottomOf(panel)) - (await bottomOf(panel.getByRole('log')));
    expect(left, 'below the log, in pixels').toBeLessThan(20);
    await saved;
    await page.goto(notebook.url);
    await expect(page.locator('.jp-gpulayer-job-panel')).toContainText('succeeded', { timeout: 60_000 });
  });
});
