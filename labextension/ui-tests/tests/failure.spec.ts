// A rank that fails, and a cell that is interrupted.
import { expect, test } from './support/lab';

test('the rank that failed first is named, with its error and the line of the cell', async ({ notebook }) => {
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
});

test('an interrupt stops the ranks and ends the cell red', async ({ lab, notebook, page }) => {
  await notebook.begin(`%%gpulayer --nodes 1 --devices 2
import threading
print("up", flush=True)
threading.Event().wait(600)
`);
  await expect(notebook.job).toContainText('running');
  expect(await lab.devicesHeld()).toBe(2);
  await page.menu.clickMenuItem('Kernel>Interrupt Kernel');
  await notebook.hasEnded();
  await expect(notebook.job).toContainText('cancelled');
  await expect(
    page.locator('.jp-Notebook .jp-RenderedText[data-mime-type="application/vnd.jupyter.stderr"]').last(),
  ).toContainText('KeyboardInterrupt');
  await expect.poll(() => lab.devicesHeld()).toBe(0);
});
