// Galata's `test` on a JupyterLab of our own, and what the tests do in it again and again, by labels and roles.
import { expect, galata, test as base } from '@jupyterlab/galata';
import type { IJupyterLabPageFixture } from '@jupyterlab/galata';
import type { Locator } from '@playwright/test';
import { LabServer } from './server';

/** What is used of JupyterLab's notebook panel. */
interface OpenNotebook {
  content: { activeCell: { model: { sharedModel: { setSource(source: string): void } } } };
}

interface Fixtures {
  notebook: Notebook;
}

interface WorkerFixtures {
  lab: LabServer;
}

export const test = base.extend<Fixtures, WorkerFixtures>({
  lab: [
    async ({}, use) => {
      const lab = await LabServer.start();
      await use(lab);
      await lab.end();
    },
    { scope: 'worker', timeout: 120_000 },
  ],
  baseURL: async ({ lab }, use) => use(lab.url.replace(/\/$/, '')),
  // Its stand-in takes every answer for JSON, and that to an interrupt is empty; sessions end their kernels.
  kernels: async ({}, use) => use(null),
  mockSettings: { ...galata.DEFAULT_SETTINGS, 'gpulayer:plugin': { notifyJobEnd: false } },
  notebook: async ({ page, tmpPath }, use) => {
    await page.notebook.createNew('job.ipynb');
    const notebook = new Notebook(page, `${tmpPath}/job.ipynb`);
    await notebook.run('%load_ext gpulayer');
    await use(notebook);
  },
});

export { expect };

/** The notebook in front. */
export class Notebook {
  constructor(
    readonly page: IJupyterLabPageFixture,
    readonly path: string,
  ) {}

  /** Adds a cell and runs it to its end. */
  async run(source: string): Promise<void> {
    await this.begin(source);
    await this.hasEnded();
  }

  /** Waits until the cell that was begun last has ended. */
  async hasEnded(): Promise<void> {
    await expect(this.page.locator('.jp-Notebook .jp-InputPrompt').last()).toHaveText(/\[\d+\]/, { timeout: 60_000 });
  }

  /** Adds a cell and runs it, and does not wait. Typing would be slow, and the editor would indent what is indented already. */
  async begin(source: string): Promise<void> {
    await this.page.evaluate(
      async ([text, isFirst]) => {
        const { commands, shell } = window.jupyterapp;
        if (!isFirst) {
          await commands.execute('notebook:insert-cell-below');
        }
        const panel = shell.currentWidget as unknown as OpenNotebook;
        panel.content.activeCell.model.sharedModel.setSource(text);
        void commands.execute('notebook:run-cell');
      },
      [source, this.isEmpty] as const,
    );
    this.isEmpty = false;
  }

  /** The newest job's output. */
  get job(): Locator {
    return this.page.locator('.jp-gpulayer-view').last();
  }

  private isEmpty = true;
}

export async function showJobs(page: IJupyterLabPageFixture): Promise<Locator> {
  await page.evaluate(async () => {
    await window.jupyterapp.commands.execute('gpulayer:show-jobs');
  });
  const jobs = page.getByRole('region', { name: 'GPUlayer jobs' });
  await expect(jobs).toBeVisible();
  return jobs;
}
