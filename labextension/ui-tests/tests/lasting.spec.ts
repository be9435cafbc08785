// What a job's view outlives: the page, the kernel, the server.
import { expect, test } from './support/lab';

/** Goes on until a file is there, so that a test decides when it ends; prints a numbered line each 50 ms. */
function untilTold(file: string): string {
  return `%%gpulayer --nodes 1 --devices 2
import os, threading
rank, number = os.environ["RANK"], 0
while not os.path.exists(${JSON.stringify(file)}):
    print(f"rank {rank} line {number}", flush=True)
    number += 1
    threading.Event().wait(0.05)
print(f"rank {rank} said {number}", flush=True)
`;
}

test('the view goes on when the kernel is restarted', async ({ notebook, page }, info) => {
  const file = info.outputPath('end');
  await notebook.begin(untilTold(file));
  await expect(notebook.job).toContainText('running');
  await page.menu.clickMenuItem('Kernel>Restart Kernel…');
  await page.getByRole('dialog').getByRole('button', { name: 'Restart' }).click();
  await expect(page.getByRole('dialog')).toHaveCount(0);
  await expect(notebook.job).toContainText('running');
  await end(file);
  await expect(notebook.job).toContainText('succeeded');
});

test('the view recovers when the Jupyter server is restarted', async ({ lab, notebook, page }, info) => {
  const file = info.outputPath('end');
  await notebook.begin(untilTold(file));
  await expect(notebook.job).toContainText('running');
  await lab.restart();
  await end(file);
  await expect(notebook.job).toContainText('succeeded', { timeout: 60_000 });
  await page.evaluate(() => undefined);
});

async function end(file: string): Promise<void> {
  const { mkdir, writeFile } = await import('node:fs/promises');
  const { dirname } = await import('node:path');
  await mkdir(dirname(file), { recursive: true });
  await writeFile(file, '');
}
