// A rank that fails, a cell that is interrupted once or twice, and a cell that is run again while its job runs.
import { expect, showJobs, test } from './support/lab';
import { end, untilTold } from './support/until_told';

test(
  'the rank that failed first is named, with its error and the line of the cell',
  { tag: '@matrix' },
  async ({ notebook }) => {
    await notebook.run(`%%gpulayer --nodes 1 --devices 2
import os, threading
def step():
    raise ValueError("shapes (64, 10) and (32, 10) differ")
if os.environ["RANK"] == "1":
    step()
threading.Event().wait(600)
`);
    const { job } = notebook;
    await expect(job).toContainText('failed');
    await expect(job).toContainText('Rank 1');
    await expect(job).toContainText('ValueError: shapes (64, 10) and (32, 10) differ');
    await expect(job).toContainText(/Cell \[\d+\], line 4 in step/);
  },
);

test('an interrupt stops the ranks and ends the cell red', { tag: '@matrix' }, async ({ lab, notebook, page }) => {
  await notebook.begin(`%%gpulayer --nodes 1 --devices 2
import threading
print("up", flush=True)
threading.Event().wait(600)
`);
  await expect(notebook.job).toContainText('running');
  await expect(notebook.job.getByRole('log')).toContainText('up');
  expect(await lab.devicesHeld()).toBe(2);
  await notebook.interrupt();
  await notebook.hasEnded();
  await expect(notebook.job).toContainText('cancelled');
  await expect(
    page.locator('.jp-Notebook .jp-RenderedText[data-mime-type="application/vnd.jupyter.stderr"]').last(),
  ).toContainText('KeyboardInterrupt');
  await expect.poll(() => lab.devicesHeld()).toBe(0);
});

test('a second interrupt kills ranks that take no notice of the first', async ({ lab, notebook }) => {
  await notebook.begin(`%%gpulayer --nodes 1 --devices 2 --grace 600
import signal, threading
for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, lambda *_: print("not yet", flush=True))
print("up", flush=True)
while True:
    threading.Event().wait(600)
`);
  const { job } = notebook;
  await expect(job.getByRole('log')).toContainText('up');
  await notebook.interrupt();
  await expect(job.getByRole('button', { name: 'Kill at once' })).toBeVisible();
  await expect(job.getByRole('log')).toContainText('not yet');
  await notebook.interrupt();
  await notebook.hasEnded();
  await expect(job).toContainText('cancelled');
  await expect.poll(() => lab.devicesHeld()).toBe(0);
});

test('Stop in the output works while the cell blocks the kernel', async ({ lab, notebook }) => {
  await notebook.begin(`%%gpulayer --nodes 1 --devices 2
import threading
print("up", flush=True)
threading.Event().wait(600)
`);
  await expect(notebook.job.getByRole('log')).toContainText('up');
  await notebook.job.getByRole('button', { name: 'Stop', exact: true }).click();
  await notebook.hasEnded();
  await expect(notebook.job).toContainText('cancelled');
  await expect.poll(() => lab.devicesHeld()).toBe(0);
});

test('a detached cell that is run again leaves its first job running', async ({ lab, notebook, page }, info) => {
  const file = info.outputPath('end');
  await notebook.run(untilTold(file, '--detach --name first'));
  await expect(notebook.job).toContainText('running');
  await notebook.runAgain();
  const running = (await showJobs(page)).getByRole('listitem').filter({ hasText: 'running' });
  await expect(running).toHaveCount(2);
  // The cell shows the second; the first is in the list.
  await expect(page.locator('.jp-Notebook .jp-gpulayer-view')).toHaveCount(1);
  await expect(notebook.job.getByRole('log')).toContainText('line 2');
  await end(file);
  await expect(running).toHaveCount(0);
  await expect(notebook.job).toContainText('succeeded');
  await expect.poll(() => lab.devicesHeld()).toBe(0);
});
