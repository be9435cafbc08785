// A job under its cell: watched, switched between ranks, searched.
import { expect, Notebook, openPage, test } from './support/lab';
import { linesOf } from './support/log';
import { end, untilTold } from './support/until_told';

test('two ranks are watched, one of them alone, and a line is found', { tag: '@matrix' }, async ({ notebook }) => {
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

test('bars are drawn as a terminal draws them', async ({ notebook }) => {
  await notebook.run(`%%gpulayer
import sys
from rich.progress import track
from tqdm import tqdm
for _ in tqdm(range(3), desc="outer", position=0, file=sys.stderr):
    for _ in tqdm(range(40), desc="inner", position=1, leave=False, mininterval=0, file=sys.stderr):
        pass
for _ in track(range(30), description="rich"):
    pass
print("after")
`);
  await expect(notebook.job).toContainText('succeeded');
  await expect(notebook.job.getByRole('log')).toContainText('after');
  const lines = await linesOf(notebook.job);
  // What a bar was before, and the inner one that is cleared at its end, leaves no line.
  expect(lines.filter(line => line.includes('outer'))).toEqual([expect.stringMatching(/outer: 100%\|█+\| 3\/3/)]);
  expect(lines.filter(line => line.includes('inner'))).toEqual([]);
  expect(lines.filter(line => line.includes('rich'))).toEqual([expect.stringMatching(/rich ━+ 100%/)]);
});

test('a bar stays below what its loop prints, and at the end of the log the wheel scrolls the notebook', async ({
  notebook,
  page,
}) => {
  await notebook.begin(`%%gpulayer
${'#\n'.repeat(40)}import sys, threading
for number in range(60):
    print(f"\\r{number} of 60", end="", file=sys.stderr, flush=True)
    print("line", number, flush=True)
threading.Event().wait(600)
`);
  const { job } = notebook;
  await expect(job).toContainText('running');
  await job.getByRole('button', { name: /^Find in the output/ }).scrollIntoViewIfNeeded();
  await job.getByRole('log').scrollIntoViewIfNeeded();
  const last = job.locator('.jp-gpulayer-logs-row').last();
  await expect(last).toContainText('59 of 60');
  const top = (): Promise<number> => page.locator('.jp-WindowedPanel-outer').evaluate(node => node.scrollTop);
  const before = await top();
  expect(before).toBeGreaterThan(0);
  await job.getByRole('log').hover();
  await expect(async () => {
    await page.mouse.wheel(0, -2_000);
    expect(await top()).toBeLessThan(before);
  }).toPass();
  await notebook.interrupt();
  await notebook.hasEnded();
});

test('what rank 0 displays stands under the job', async ({ notebook, page }) => {
  await notebook.run(`%%gpulayer
import matplotlib.pyplot as plt
import pandas
print("before")
display(pandas.DataFrame({"loss": [0.25, 0.125]}))
plt.plot([1, 2, 3])
plt.show()
`);
  await expect(notebook.job).toContainText('succeeded');
  const outputs = page.locator('.jp-Notebook .jp-OutputArea-output');
  await expect(outputs.locator('table.dataframe')).toContainText('0.125');
  const figure = outputs.locator('img');
  await expect(figure).toBeVisible();
  expect(await figure.evaluate((image: HTMLImageElement) => image.naturalWidth)).toBeGreaterThan(100);
});

test('metrics are charts, whose values the keyboard reads', async ({ notebook, page }) => {
  await notebook.run(`%%gpulayer --nodes 1 --devices 2
import gpulayer, os
for step in range(50):
    gpulayer.log(loss=1 / (step + 1) + int(os.environ["RANK"]) / 100, step=step)
`);
  const { job } = notebook;
  await expect(job).toContainText('succeeded');
  await job.getByRole('tab', { name: 'Metrics' }).click();
  const chart = job.getByRole('tabpanel', { name: 'Metrics' }).getByLabel(/^loss: arrow keys read the values/);
  await chart.focus();
  await page.keyboard.press('Home');
  const panel = job.getByRole('tabpanel', { name: 'Metrics' });
  await expect(panel).toContainText('step 0');
  await page.keyboard.press('ArrowRight');
  await expect(panel).toContainText('step 1');
  await expect(panel).toContainText('0.5');
  await job.getByRole('button', { name: 'As table' }).click();
  await expect(job.getByRole('table')).toContainText('loss');
});

test('two pages show the same running job', async ({ notebook, page, lab, window }, info) => {
  const file = info.outputPath('end');
  await notebook.begin(untilTold(file));
  await expect(notebook.job.getByRole('log')).toContainText('line 5');
  await notebook.command('docmanager:save');
  const other = new Notebook(await openPage(window, lab), lab, 'lab', notebook.name);
  await other.open();
  await expect(other.job).toContainText('running');
  await expect(other.job.getByRole('log')).toContainText('line');
  await end(file);
  for (const one of [notebook, other]) {
    await expect(one.job).toContainText('succeeded');
  }
  const there = await linesOf(other.job);
  await other.page.close(); // a page behind another draws seldom
  await page.bringToFront();
  expect(await linesOf(notebook.job)).toEqual(there);
  await notebook.hasEnded();
});
