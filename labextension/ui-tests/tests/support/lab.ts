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
  /** Ends what a test has left running. */
  noSessions: void;
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
  // Galata's stand-ins for these fail with the server when it restarts, and take an interrupt's empty answer for JSON.
  kernels: async ({}, use) => use(null),
  sessions: async ({}, use) => use(null),
  terminals: async ({}, use) => use(null),
  noSessions: [
    async ({ request }, use) => {
      await use();
      for (const { id } of (await (await request.get('/api/sessions')).json()) as { id: string }[]) {
        await request.delete(`/api/sessions/${id}`);
      }
    },
    { auto: true },
  ],
  mockSettings: { ...galata.DEFAULT_SETTINGS, 'gpulayer:plugin': { notifyJobEnd: false } },
  // As Galata's, but that a page which is loaded again shows what was open, and no launcher.
  waitForApplication: async ({}, use) =>
    use(async page => {
      await page.locator('#jupyterlab-splash').waitFor({ state: 'detached' });
      await page.locator('#jp-main-dock-panel').getByRole('tab').first().waitFor();
    }),
  notebook: async ({ page, tmpPath }, use) => use(await Notebook.create(page, tmpPath)),
});

export { expect };

/** The notebook in front. */
export class Notebook {
  static async create(page: IJupyterLabPageFixture, folder: string): Promise<Notebook> {
    await page.notebook.createNew('job.ipynb');
    const notebook = new Notebook(page, `${folder}/job.ipynb`);
    await notebook.run('%load_ext gpulayer');
    return notebook;
  }

  private constructor(
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
    return this.page.locator('.jp-Notebook .jp-gpulayer-view').last();
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
