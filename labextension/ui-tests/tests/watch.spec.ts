// A job under its cell: watched, switched between ranks, searched.
import { expect, Notebook, test } from './support/lab';
import { linesOf } from './support/log';

test('two ranks are watched, one of them alone, and a line is found', async ({ notebook }) => {
  await notebook.run(`%%gpulayer --nodes 1 --devices 2
import os
rank = os.environ["RANK"]
for number in range(200):
    print(f"rank {rank} line {number}", flush=True)
`);
  const { job } = notebook;
  const log = job.getByRole('log');
  await expect(job).toContainText('succeeded');
  await expect(job).toContainText('400 lines');
  await job.getByRole('button', { name: 'Rank 0' }).click();
  await expect(log).toContainText('rank 0 line 199');
  await expect(log).not.toContainText('rank 1');
  await job.getByRole('button', { name: 'Rank 1' }).click();
  await expect(log).toContainText('rank 1 line 199');
  await expect(log).not.toContainText('rank 0');
  await job.getByRole('button', { name: /^Find in the output/ }).click();
  await job.getByRole('searchbox', { name: 'Find in the output' }).fill('line 57');
  await job.getByRole('button', { name: 'Next match' }).click();
  await expect(log).toContainText('rank 1 line 57');
});

test('where no WebSocket comes through, polls bring the same', async ({ page, tmpPath }) => {
  await page.routeWebSocket(/gpulayer\/v1\/stream/, socket => socket.close());
  await page.reload();
  const notebook = await Notebook.create(page, tmpPath);
  await notebook.run('%%gpulayer\nfor number in range(300):\n    print(f"line {number}", flush=True)\n');
  await expect(notebook.job).toContainText('succeeded');
  await expect(notebook.job.getByRole('log')).toContainText('line 299');
  expect(await linesOf(notebook.job)).toEqual(Array.from({ length: 300 }, (_none, number) => `line ${number}`));
});
