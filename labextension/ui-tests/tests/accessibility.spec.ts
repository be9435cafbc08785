// Everything by keyboard, and axe with all rules of WCAG 2.1 A and AA, in both themes.
import { expectNoViolations } from './support/axe';
import { expect, showJobs, test } from './support/lab';

const OUTPUT = '.jp-Notebook .jp-gpulayer-view';

for (const theme of ['Dark', 'Light'] as const) {
  test(`outputs, the sidebar and the dialog have no violations in the theme ${theme}`, async ({ notebook, page }) => {
    await notebook.setTheme(theme);
    await notebook.run(`%%gpulayer --nodes 1 --devices 2
import gpulayer, sys
print("out \\x1b[31mred \\x1b[32mgreen \\x1b[2mfaint\\x1b[0m")
print("err", file=sys.stderr)
for step in range(5):
    gpulayer.log(loss=1 / (step + 1), step=step)
`);
    await expect(notebook.job).toContainText('succeeded');
    await expect(notebook.job.getByRole('log')).toContainText('out');
    await expectNoViolations(page, OUTPUT);
    for (const name of ['Metrics', 'Ranks', 'Start-up', 'Source']) {
      const tab = notebook.job.getByRole('tab', { name: new RegExp(`^${name}`) });
      await tab.click();
      await expect(tab).toHaveAttribute('aria-selected', 'true');
      await expectNoViolations(page, OUTPUT);
    }
    await notebook.run('%%gpulayer --nodes 1 --devices 2\nraise ValueError("no")\n');
    await expect(notebook.job).toContainText('ValueError: no');
    await expectNoViolations(page, OUTPUT);
    const jobs = await showJobs(page);
    await notebook.begin(`%%gpulayer --nodes 1 --devices 2
import gpulayer, threading
gpulayer.progress(1, 4, "epoch 1/4")
threading.Event().wait(600)
`);
    await expect(jobs.getByRole('listitem').first()).toContainText('epoch 1/4');
    await expectNoViolations(page, '.jp-gpulayer-sidebar');
    await jobs.getByRole('button', { name: /^Stop/ }).first().click();
    const dialog = page.getByRole('dialog');
    await expect(dialog).toContainText('Its ranks are interrupted');
    await expectNoViolations(page, '.jp-Dialog-content');
    await dialog.getByRole('button', { name: 'Stop' }).click();
    await notebook.hasEnded();
    await expect(notebook.job).toContainText('cancelled');
  });
}

test('a job is run, watched, searched and stopped by keyboard alone', async ({ notebook, page }) => {
  await page.locator('.jp-Notebook .jp-Cell .cm-content').last().focus();
  await page.keyboard.insertText(
    '%%gpulayer --nodes 1 --devices 2\nimport os, threading\nfor number in range(30):\n    print("rank", os.environ["RANK"], "line", number, flush=True)\nthreading.Event().wait(600)\n',
  );
  await page.keyboard.press('Control+Enter');
  const { job } = notebook;
  const log = job.getByRole('log');
  await expect(log).toContainText('line 29');
  await job.getByRole('button', { name: 'All ranks' }).focus();
  await page.keyboard.press('ArrowRight');
  await page.keyboard.press('Enter');
  await expect(job.getByRole('button', { name: 'Rank 0' })).toHaveAttribute('aria-pressed', 'true');
  await expect(log).not.toContainText('rank 1');
  await log.focus();
  await page.keyboard.press('/');
  await expect(job.getByRole('searchbox', { name: 'Find in the output' })).toBeFocused();
  await page.keyboard.type('line 7');
  await expect(job).toContainText('1 of 1');
  await page.keyboard.press('Escape');
  await expect(log).toBeFocused();
  await job.getByRole('tab', { name: 'Output' }).focus();
  await page.keyboard.press('ArrowRight');
  await expect(job.getByRole('tab', { name: /^Ranks/ })).toBeFocused();
  await expect(job.getByRole('tabpanel', { name: /^Ranks/ })).toBeVisible();
  await job.getByRole('button', { name: 'Stop', exact: true }).focus();
  await page.keyboard.press('Enter');
  await notebook.hasEnded();
  await expect(job).toContainText('cancelled');
});

test('jobs are gone through, opened and stopped by keyboard alone', async ({ notebook, page }) => {
  await notebook.run('%%gpulayer\nprint("first")\n');
  await notebook.run(
    '%%gpulayer --detach\nimport threading\nprint("second", flush=True)\nthreading.Event().wait(600)\n',
  );
  const jobs = await showJobs(page);
  const rows = jobs.getByRole('listitem');
  await expect(rows.first()).toContainText('running');
  await expect(jobs.locator(':focus')).toBeVisible();
  await page.keyboard.press('Home');
  await expect(rows.first().getByRole('button').first()).toBeFocused();
  await page.keyboard.press('ArrowDown');
  await expect(rows.nth(1).getByRole('button').first()).toBeFocused();
  await page.keyboard.press('Enter');
  const panel = page.locator('.jp-gpulayer-job-panel');
  await expect(panel.getByRole('log')).toContainText('first');
  await rows.first().getByRole('button').first().focus();
  await page.keyboard.press('Delete');
  await expect(page.getByRole('dialog').getByRole('button', { name: 'Stop' })).toBeFocused();
  await page.keyboard.press('Enter');
  await expect(rows.first()).toContainText('cancelled');
});
