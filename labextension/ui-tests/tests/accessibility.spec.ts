// Everything by keyboard, and axe with all rules of WCAG 2.1 A and AA, in both themes.
import AxeBuilder from '@axe-core/playwright';
import type { IJupyterLabPageFixture } from '@jupyterlab/galata';
import { expect, showJobs, test } from './support/lab';

const TAGS = ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa'];

async function expectNoViolations(page: IJupyterLabPageFixture, selector: string): Promise<void> {
  const { violations } = await new AxeBuilder({ page }).setLegacyMode().include(selector).withTags(TAGS).analyze();
  expect(
    violations.map(({ id, nodes }) => `${id}: ${nodes.map(node => `${node.html} ${node.failureSummary}`).join('\n')}`),
  ).toEqual([]);
}

for (const theme of ['light', 'dark']) {
  test(`outputs and the sidebar have no violations in the ${theme} theme`, async ({ notebook, page }) => {
    await (theme === 'dark' ? page.theme.setDarkTheme() : page.theme.setLightTheme());
    await notebook.run(
      '%%gpulayer --nodes 1 --devices 2\nimport gpulayer, sys\nprint("out")\nprint("err", file=sys.stderr)\n',
    );
    await expect(notebook.job).toContainText('succeeded');
    await expect(notebook.job.getByRole('log')).toContainText('out');
    await expectNoViolations(page, '.jp-Notebook .jp-gpulayer-view');
    for (const name of ['Ranks', 'Start-up', 'Source']) {
      await notebook.job.getByRole('tab', { name: new RegExp(`^${name}`) }).click();
      await expectNoViolations(page, '.jp-Notebook .jp-gpulayer-view');
    }
    await notebook.run('%%gpulayer --nodes 1 --devices 2\nraise ValueError("no")\n');
    await expect(notebook.job).toContainText('ValueError: no');
    const jobs = await showJobs(page);
    await expect(jobs.getByRole('listitem').nth(1)).toBeVisible();
    await expectNoViolations(page, '.jp-gpulayer-sidebar');
    await expectNoViolations(page, '.jp-Notebook .jp-gpulayer-view');
  });
}

test('jobs are gone through, opened and searched by keyboard alone', async ({ notebook, page }) => {
  await notebook.run('%%gpulayer\nprint("first")\n');
  await notebook.run('%%gpulayer\nprint("second")\n');
  await expect(notebook.job).toContainText('succeeded');
  const jobs = await showJobs(page);
  const rows = jobs.getByRole('listitem');
  await expect(rows.first()).toContainText('succeeded');
  await expect(rows.first().getByRole('button').first()).toBeFocused();
  await page.keyboard.press('ArrowDown');
  await expect(rows.nth(1).getByRole('button').first()).toBeFocused();
  await page.keyboard.press('Enter');
  const panel = page.locator('.jp-gpulayer-job-panel');
  await expect(panel.getByRole('log')).toContainText('first');
  await panel.getByRole('log').focus();
  await page.keyboard.press('/');
  await expect(panel.getByRole('searchbox', { name: 'Find in the output' })).toBeFocused();
  await page.keyboard.type('first');
  await page.keyboard.press('Escape');
  await expect(panel.getByRole('searchbox', { name: 'Find in the output' })).toBeHidden();
});
