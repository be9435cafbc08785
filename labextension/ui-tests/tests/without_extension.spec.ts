// Front ends without the lab extension: the widget draws the job as it runs; where nothing draws widgets either, its text stands there.
import { expect, Notebook, openPage, test } from './support/lab';
import { withoutExtensions } from './support/front_ends';
import { end, untilTold } from './support/until_told';

for (const { title, missing } of [
  { title: 'the widget draws a job while it runs', missing: ['gpulayer'] },
  {
    title: 'text is shown where nothing draws widgets',
    missing: ['gpulayer', 'anywidget', '@jupyter-widgets/jupyterlab-manager'],
  },
]) {
  test(title, async ({ window, lab }, info) => {
    const page = await openPage(window, lab);
    await withoutExtensions(page, missing);
    const notebook = new Notebook(page, lab, 'lab');
    await notebook.open();
    await notebook.run('%load_ext gpulayer');
    // Whether it draws widgets, the front end says between two cells.
    await notebook.run('1 + 1');
    const file = info.outputPath('end');
    await notebook.begin(untilTold(file));
    if (missing.length === 1) {
      await expect(notebook.job.getByRole('log')).toContainText('line 5');
      await expect(notebook.job).toContainText('running');
      await expect(notebook.job).toContainText('Interrupt the cell to stop the job.');
    } else {
      await expect(page.locator('.jp-Notebook .jp-OutputArea-output').last()).toContainText('line 5');
    }
    await end(file);
    await notebook.hasEnded();
    const output = page.locator('.jp-Notebook .jp-OutputArea-output').filter({ hasText: 'rank 1 said' });
    await expect(output).toContainText('succeeded');
    await expect(page.locator('.jp-Notebook')).not.toContainText('Loading widget');
    await notebook.endKernel();
    await page.close();
  });
}
