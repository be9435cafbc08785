// A server as a hub starts it: below a prefix, with a token and the XSRF check, and without workers.
import { readFile } from 'node:fs/promises';
import { expect, showJobs, test } from './support/lab';
import { expectNoViolations } from './support/axe';
import { submitsAlone } from './support/submits_alone';

test('a job without workers waits, says so, and runs on those that its button starts', async ({ notebook, page }) => {
  await notebook.begin(submitsAlone('alone', 2, 1));
  const { job } = notebook;
  await expect(job).toContainText('No worker');
  await expectNoViolations(page, '.jp-Notebook .jp-gpulayer-view');
  const row = (await showJobs(page)).getByRole('listitem').first();
  await expect(row).toContainText('waits');
  await job.getByRole('button', { name: 'Add a worker…' }).click();
  await expect(job.locator('.jp-gpulayer-command')).toContainText(/gpulayer worker start --server 'http.*\/user\/x\/'/);
  await job.getByRole('button', { name: /^Start 2 local workers/ }).click();
  await expect(job).toContainText('succeeded', { timeout: 60_000 });
  await expect(job.getByRole('log')).toContainText('rank 1 is up');
  await expect(row).toContainText('2 nodes × 1 cpu');
  await notebook.hasEnded();
});

test('the whole log is downloaded, and a job is stopped from the list', async ({ notebook, page }) => {
  await notebook.begin(`%%gpulayer --accelerator cpu
import threading
print("up", flush=True)
threading.Event().wait(600)
`);
  const { job } = notebook;
  await expect(job.getByRole('log')).toContainText('up');
  const row = (await showJobs(page)).getByRole('listitem').first();
  await row.getByRole('button', { name: /^Stop/ }).click();
  await page.getByRole('dialog').getByRole('button', { name: 'Stop' }).click();
  await expect(job).toContainText('cancelled');
  await notebook.hasEnded();
  const download = page.waitForEvent('download');
  await job.getByRole('link', { name: /^Download the whole log/ }).click();
  expect(await readFile(await (await download).path(), 'utf8')).toContain('up');
});
