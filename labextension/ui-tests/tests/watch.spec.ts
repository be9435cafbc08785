// A job under its cell: watched, switched between ranks, searched.
import { expect, test } from './support/lab';

const TWO_RANKS = `%%gpulayer --nodes 1 --devices 2
import os
rank = os.environ["RANK"]
for number in range(200):
    print(f"rank {rank} line {number}", flush=True)
`;

test('two ranks are watched, one of them alone, and a line is found', async ({ notebook }) => {
  await notebook.run(TWO_RANKS);
  const { job } = notebook;
  await expect(job).toContainText('succeeded');
  await expect(job).toContainText('rank 0 line 199');
});
