// A notebook in front of a person, in JupyterLab or Notebook 7: cells are added and run by the front end's own commands.
import { writeFile } from 'node:fs/promises';
import path from 'node:path';
import type { Locator, Page } from '@playwright/test';
import { expect } from '@jupyterlab/galata';
import type { LabServer, ServerKind } from './server';

/** A page behind another draws seldom, so that its frames are no clock. */
const PATIENTLY = { polling: 100, timeout: 60_000 };

/** What is used of a notebook panel. */
interface OpenNotebook {
  id: string;
  sessionContext: { session: { kernel: object | null } | null };
  content: {
    activeCellIndex: number;
    activeCell: { model: { sharedModel: { setSource(source: string): void } } };
    model: {
      sharedModel: {
        cells: unknown[];
        insertCell(index: number, cell: object): void;
        deleteCellRange(from: number, to: number): void;
      };
    };
  };
}

/** Any widget in front: one that is no notebook has no such content, and a notebook has no model before it is loaded. */
interface InFront {
  content?: { model?: OpenNotebook['content']['model'] | null };
}

const EMPTY = {
  cells: [],
  metadata: { kernelspec: { name: 'python3', display_name: 'Python 3', language: 'python' } },
  nbformat: 4,
  nbformat_minor: 5,
};

let made = 0;
let opened = 0;

export class Notebook {
  readonly name: string;

  /** @param name - Of one that is there; without it, an empty one is made. */
  constructor(
    readonly page: Page,
    private readonly lab: LabServer,
    private readonly kind: ServerKind,
    name?: string,
  ) {
    this.name = name ?? `job-${++made}.ipynb`;
    this.isThere = name !== undefined;
  }

  get file(): string {
    return path.join(this.lab.root, this.name);
  }

  /** JupyterLab leads a second page of one workspace elsewhere. */
  get url(): string {
    const folder = this.kind === 'notebook' ? 'notebooks' : `lab/workspaces/${this.workspace}/tree`;
    return `${this.lab.url}${folder}/${this.name}`;
  }

  /** Shows it in its page, once the front end is ready for commands. */
  async open(): Promise<void> {
    if (!this.isThere) {
      await writeFile(this.file, JSON.stringify(EMPTY));
      this.isThere = true;
    }
    const login = this.kind === 'user' ? `&token=${this.lab.token}` : '';
    await this.page.goto(`${this.url}?reset${login}`, { waitUntil: 'domcontentloaded' });
    await this.isReady();
  }

  /** Waits until the front end shows it. */
  async isReady(): Promise<void> {
    await this.page.waitForFunction(() => typeof window.jupyterapp === 'object', null, PATIENTLY);
    await this.page.evaluate(() => window.jupyterapp.started);
    await this.page.locator('#jupyterlab-splash').waitFor({ state: 'detached' });
    await this.page.locator('.jp-NotebookPanel .jp-Notebook').waitFor({ timeout: 60_000 });
    await this.page.waitForFunction(
      () => {
        const inFront = window.jupyterapp.shell.currentWidget as unknown as InFront | null;
        return (inFront?.content?.model?.sharedModel.cells.length ?? 0) > 0;
      },
      null,
      PATIENTLY,
    );
    await this.page.evaluate(() => {
      document.body.dataset.notebook = window.jupyterapp.shell.currentWidget?.id;
    });
  }

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
    // Without a kernel the front end would ask for one.
    await this.page.waitForFunction(
      () => {
        const { shell } = window.jupyterapp;
        const isOurs = (widget: { id: string }): boolean => widget.id === document.body.dataset.notebook;
        const panel = [...shell.widgets('main')].find(isOurs) as unknown as OpenNotebook | undefined;
        return !!panel?.sessionContext.session?.kernel;
      },
      null,
      PATIENTLY,
    );
    await this.page.evaluate(
      async ([text, isFirst]) => {
        const { commands, shell } = window.jupyterapp;
        const id = document.body.dataset.notebook ?? '';
        shell.activateById(id);
        if (!isFirst) {
          await commands.execute('notebook:move-cursor-to-last-cell').catch(() => undefined);
          const inFront = shell.currentWidget as unknown as OpenNotebook;
          inFront.content.activeCellIndex = inFront.content.model.sharedModel.cells.length - 1;
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

  /** Rewrites the cell in front. */
  async setSource(source: string): Promise<void> {
    await this.page.evaluate(text => {
      const panel = window.jupyterapp.shell.currentWidget as unknown as OpenNotebook;
      panel.content.activeCell.model.sharedModel.setSource(text);
    }, source);
  }

  /** Runs the cell in front again; its output goes. */
  async runAgain(): Promise<void> {
    await this.page.evaluate(() => void window.jupyterapp.commands.execute('notebook:run-cell'));
  }

  /** One of the front end's commands, to its end. */
  async command(id: string, args: Record<string, string | boolean> = {}): Promise<void> {
    await this.page.evaluate(
      async ([command, values]) => {
        await window.jupyterapp.commands.execute(command, values);
      },
      [id, args] as const,
    );
  }

  /** A command that asks first, confirmed by the button of this name. */
  async confirm(id: string, button: string): Promise<void> {
    await this.page.evaluate(command => void window.jupyterapp.commands.execute(command), id);
    await this.page.getByRole('dialog').getByRole('button', { name: button }).click();
    await expect(this.page.getByRole('dialog')).toHaveCount(0);
  }

  async interrupt(): Promise<void> {
    await this.page.evaluate(() => void window.jupyterapp.commands.execute('notebook:interrupt-kernel'));
  }

  async setTheme(theme: 'Light' | 'Dark'): Promise<void> {
    await this.command('apputils:change-theme', { theme: `JupyterLab ${theme}` });
    await expect(this.page.locator('body')).toHaveAttribute('data-jp-theme-name', `JupyterLab ${theme}`);
  }

  /** As it was when it was made, but that its kernel goes on. */
  async clear(): Promise<void> {
    await this.page.evaluate(() => {
      const { shell } = window.jupyterapp;
      const id = document.body.dataset.notebook ?? '';
      for (const widget of [...shell.widgets('main')]) {
        if (widget.id !== id) {
          widget.close();
        }
      }
      (shell as unknown as { collapseLeft(): void }).collapseLeft();
      shell.activateById(id);
      const { content } = shell.currentWidget as unknown as OpenNotebook;
      const shared = content.model.sharedModel;
      shared.insertCell(0, { cell_type: 'code', source: '' });
      shared.deleteCellRange(1, shared.cells.length);
      content.activeCellIndex = 0;
    });
    this.isEmpty = true;
  }

  async endKernel(): Promise<void> {
    const { request } = this.page;
    const [sessions, headers] = [`${this.lab.url}api/sessions`, { Authorization: `token ${this.lab.token}` }];
    const all = (await (await request.get(sessions, { headers })).json()) as { id: string; path: string }[];
    for (const { id } of all.filter(one => one.path === this.name)) {
      expect((await request.delete(`${sessions}/${id}`, { headers })).ok()).toBe(true);
    }
  }

  /** The newest job's output. */
  get job(): Locator {
    return this.page.locator('.jp-Notebook .jp-gpulayer-view').last();
  }

  private readonly workspace = `page-${++opened}`;
  private isThere: boolean;
  private isEmpty = true;
}

export async function showJobs(page: Page): Promise<Locator> {
  await page.evaluate(async () => {
    await window.jupyterapp.commands.execute('gpulayer:show-jobs');
  });
  const jobs = page.getByRole('region', { name: 'GPUlayer jobs' });
  await expect(jobs).toBeVisible();
  return jobs;
}
