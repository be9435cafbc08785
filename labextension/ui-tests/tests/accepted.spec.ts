// What was accepted with `--rerun`, kept in the notebook's file for the next kernel.
import { readFile } from 'node:fs/promises';
import { expect, test } from './support/lab';

test.use({ ownPage: true });

interface SavedCell {
  source: string | string[];
  metadata: { gpulayer?: { rerun?: Record<string, string[]> } };
}

test(
  'a side effect that was accepted is not asked about in the next kernel, and one that changed is',
  { tag: '@matrix' },
  async ({ notebook, page }) => {
    await notebook.run("from pathlib import Path\nlength = Path('kept.txt').write_text('1234')");
    await notebook.run('%%gpulayer\nprint("length", length)');
    const outputs = page.locator('.jp-Notebook .jp-OutputArea-output');
    await expect(outputs.last()).toContainText('would run again on every rank');
    await notebook.setSource('%%gpulayer --rerun length\nprint("length", length)');
    await notebook.runAgain();
    await expect(notebook.job).toContainText('succeeded');
    await expect(outputs.filter({ hasText: 'also ran on every rank' })).not.toContainText('accepted in this notebook');
    await notebook.setSource('%%gpulayer\nprint("length", length)');
    await notebook.command('docmanager:save');
    const saved = JSON.parse(await readFile(notebook.file, 'utf8')) as { cells: SavedCell[] };
    expect(saved.cells.map(({ metadata }) => Object.values(metadata.gpulayer?.rerun ?? {}))).toEqual([
      [],
      [],
      [[expect.stringMatching(/^[0-9a-f]{32}$/)]],
    ]);

    // All cells are sent at once: the kernel hears nothing from the page before the last has begun.
    await notebook.confirm('notebook:restart-run-all', 'Confirm Kernel Restart');
    await expect(outputs.filter({ hasText: 'accepted in this notebook before' })).toBeVisible();
    await expect(notebook.job).toContainText('succeeded');

    await notebook.hasEnded();
    await notebook.confirm('notebook:restart-kernel', 'Confirm Kernel Restart');
    await notebook.run('%load_ext gpulayer');
    await notebook.run("from pathlib import Path\nlength = Path('kept.txt').write_text('changed')");
    await notebook.run('%%gpulayer\nprint("length", length)');
    await expect(outputs.last()).toContainText('would run again on every rank');
  },
);
