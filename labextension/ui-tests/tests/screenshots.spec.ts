// Pictures for the docs, of the states that matter. They are compared with nothing; look at them. Made when they are asked for
// (GPULAYER_SCREENSHOTS=1), since each run makes other bytes.
import path from 'node:path';
import type { Locator, Page } from '@playwright/test';
import { expect, Notebook, showJobs, test } from './support/lab';
import { submitsAlone } from './support/submits_alone';

const FOLDER = path.resolve(__dirname, '../../../docs/images');
const TRAIN = `%%gpulayer --nodes 2 --devices 2 --name train
import math, os, threading
import gpulayer
rank = int(os.environ["RANK"])
for step in range(240):
    loss = 2.3 * math.exp(-step / 60) + 0.05 * math.sin(step / 3 + rank)
    gpulayer.log(loss=loss, step=step)
    if step % 20 == 0:
        gpulayer.progress(step, 600, f"epoch {1 + step // 100} of 6")
        print(f"step {step:3d}  loss {loss:.4f}", flush=True)
threading.Event().wait(600)
`;
const HOLD = `%%gpulayer --nodes 1 --devices 2 --detach --name first
import threading
print("up", flush=True)
threading.Event().wait(600)
`;
const FAIL = `%%gpulayer --nodes 1 --devices 2 --name step
import os, threading
def step(batch):
    raise ValueError("shapes (64, 10) and (32, 10) differ")
if os.environ["RANK"] == "1":
    step(None)
threading.Event().wait(600)
`;

async function shoot(what: Page | Locator, name: string): Promise<void> {
  await what.screenshot({ path: path.join(FOLDER, `${name}.png`) });
}

async function failure(notebook: Notebook): Promise<void> {
  await notebook.run(FAIL);
  await expect(notebook.job).toContainText('Cell [');
  await expect(notebook.job.getByRole('log')).toContainText('ValueError');
}

test.describe('pictures', () => {
  test.setTimeout(300_000);
  for (const theme of process.env.GPULAYER_SCREENSHOTS ? (['Light', 'Dark'] as const) : []) {
    test(`of the main states, ${theme}`, async ({ notebook, page }) => {
      const ending = `-${theme.toLowerCase()}`;
      await notebook.setTheme(theme);
      await failure(notebook);
      await shoot(notebook.job, `failure${ending}`);
      await notebook.run(HOLD);
      await expect(notebook.job).toContainText('running');
      await notebook.job.evaluate(node => {
        node.setAttribute('data-holding', '');
      });
      await notebook.begin(submitsAlone('wide', 2, 2));
      await expect(notebook.job).toContainText('Add a worker…');
      await shoot(notebook.job, `waiting${ending}`);
      // It would hold back what comes after it.
      await page.locator('[data-holding]').getByRole('button', { name: 'Stop', exact: true }).click();
      await expect(notebook.job).toContainText('succeeded');
      await notebook.hasEnded();
      await showJobs(page);
      await notebook.begin(TRAIN);
      // Below the page's edge it draws no lines.
      await expect(notebook.job).toContainText('train');
      await notebook.job.scrollIntoViewIfNeeded();
      await expect(notebook.job.getByRole('log')).toContainText('step 220');
      await expect(notebook.job).toContainText('epoch 3 of 6');
      await expect(notebook.job.getByRole('tab', { name: /^Metrics/ })).toBeVisible();
      await shoot(page, `jupyterlab${ending}`);
      await shoot(notebook.job, `job${ending}`);
      await notebook.job.getByRole('tab', { name: /^Metrics/ }).click();
      await expect(notebook.job.getByRole('tabpanel').locator('canvas').first()).toBeVisible();
      await shoot(notebook.job, `metrics${ending}`);
      await notebook.job.getByRole('tab', { name: /^Start-up/ }).click();
      await shoot(notebook.job, `start-up${ending}`);
      if (theme === 'Light') {
        await shoot(page.getByRole('region', { name: 'GPUlayer jobs' }), `sidebar${ending}`);
      }
      await notebook.interrupt();
      await notebook.hasEnded();
    });
  }
});
