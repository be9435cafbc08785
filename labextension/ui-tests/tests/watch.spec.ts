// A job under its cell: watched, switched between ranks, searched.
import { expect, test } from './support/lab';

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
  await job.getByRole('textbox', { name: 'Find in the output' }).fill('line 57');
  await job.getByRole('button', { name: 'Next match' }).click();
  await expect(log).toContainText('rank 1 line 57');
});
