// Pictures for the docs, of the states that matter, in both themes. They are compared with nothing; look at them.
import path from 'node:path';
import { expect, showJobs, test } from './support/lab';

// Made when they are asked for, since each run makes other bytes.
const THEMES = process.env.GPULAYER_SCREENSHOTS ? ['light', 'dark'] : [];
const FOLDER = path.resolve(__dirname, '../../../docs/images');

test.describe('pictures', () => {
  test.setTimeout(300_000);
  for (const theme of THEMES) {
    test(`of the main states, ${theme}`, async ({ notebook, page }) => {
      await notebook.setTheme(theme === 'dark' ? 'Dark' : 'Light');
      const shoot = (name: string): Promise<Buffer> =>
        notebook.job.screenshot({ path: path.join(FOLDER, `${name}-${theme}.png`) });
      await notebook.run(`%%gpulayer --nodes 1 --devices 2 --name digits
import gpulayer, math
for step in range(60):
    gpulayer.log(loss=2.3 * math.exp(-step / 20), step=step)
    if step % 5 == 0:
        print(f"step {step}: loss {2.3 * math.exp(-step / 20):.3f}")
`);
      await expect(notebook.job).toContainText('succeeded');
      await expect(notebook.job.getByRole('log')).toContainText('step 55');
      await shoot('job');
      await notebook.job.getByRole('tab', { name: /^Start-up/ }).click();
      await shoot('start-up');
      await notebook.run(`%%gpulayer --nodes 1 --devices 2 --name step
import os, threading
def step():
    raise ValueError("shapes (64, 10) and (32, 10) differ")
if os.environ["RANK"] == "1":
    step()
threading.Event().wait(600)
`);
      await expect(notebook.job).toContainText('ValueError');
      await shoot('failure');
      await showJobs(page);
      await notebook.begin(`%%gpulayer --nodes 1 --devices 2 --name train
import gpulayer, threading
gpulayer.progress(2, 3, "epoch 2/3")
print("epoch 2", flush=True)
threading.Event().wait(600)
`);
      await expect(notebook.job).toContainText('running');
      await expect(notebook.job).toContainText('epoch 2/3');
      await notebook.job.scrollIntoViewIfNeeded();
      await page.screenshot({ path: path.join(FOLDER, `jupyterlab-${theme}.png`) });
      await notebook.interrupt();
      await notebook.hasEnded();
      await shoot('cancelled');
    });
  }
});
