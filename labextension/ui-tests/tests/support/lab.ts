// Galata's `test` on Jupyter servers of our own. Loading a page and starting a kernel take longer than most tests do, so tests share
// one page with one notebook, which is emptied between them; one that breaks its page asks for a page of its own (`ownPage`).
import { expect, galata, test as base } from '@jupyterlab/galata';
import type { IJupyterLabPageFixture } from '@jupyterlab/galata';
import type { Browser, BrowserContext } from '@playwright/test';
import { Notebook, showJobs } from './notebook';
import { LabServer } from './server';
import type { ServerKind } from './server';

interface Fixtures {
  /** Whether the test has a page to itself. */
  ownPage: boolean;
  notebook: Notebook;
  desk: Desk;
}

interface WorkerFixtures {
  kind: ServerKind;
  lab: LabServer;
  /** The browser's window, with what it has loaded already. */
  window: BrowserContext;
  sharedDesk: { desk: Desk | null; restarts: number };
}

/** A page with a notebook whose kernel has GPUlayer. */
interface Desk {
  page: IJupyterLabPageFixture;
  notebook: Notebook;
}

export const test = base.extend<Fixtures, WorkerFixtures>({
  kind: ['lab', { scope: 'worker', option: true }],
  ownPage: [false, { option: true }],
  lab: [
    async ({ kind }, use) => {
      const lab = await LabServer.start(kind);
      await use(lab);
      await lab.end();
    },
    { scope: 'worker', timeout: 120_000 },
  ],
  baseURL: async ({ lab }, use) => use(lab.url.replace(/\/$/, '')),
  window: [
    async ({ browser }, use) => {
      const window = await openWindow(browser);
      await use(window);
      await window.close();
    },
    { scope: 'worker' },
  ],
  sharedDesk: [async ({ lab }, use) => use({ desk: null, restarts: lab.restarts }), { scope: 'worker' }],
  desk: async ({ ownPage, sharedDesk, window, lab, kind }, use) => {
    if (ownPage) {
      const desk = await openDesk(window, lab, kind);
      await use(desk);
      await desk.notebook.endKernel();
      await desk.page.close();
      return;
    }
    if (sharedDesk.restarts !== lab.restarts) {
      await sharedDesk.desk?.page.close(); // its kernel ended with the server
      Object.assign(sharedDesk, { desk: null, restarts: lab.restarts });
    }
    sharedDesk.desk ??= await openDesk(window, lab, kind);
    await sharedDesk.desk.notebook.clear();
    await use(sharedDesk.desk);
  },
  page: async ({ desk }, use) => use(desk.page),
  notebook: async ({ desk }, use) => use(desk.notebook),
});

export { expect, Notebook, showJobs };

async function openWindow(browser: Browser): Promise<BrowserContext> {
  const window = await browser.newContext({ viewport: { width: 1280, height: 900 } });
  window.setDefaultTimeout(20_000);
  return window;
}

/** A page in the window, not yet led anywhere, whose settings and workspace stay in it. */
export async function openPage(window: BrowserContext, lab: LabServer): Promise<IJupyterLabPageFixture> {
  return galata.initTestPage(
    '/lab',
    false,
    lab.url.replace(/\/$/, ''),
    true,
    { ...galata.DEFAULT_SETTINGS, 'gpulayer:plugin': { notifyJobEnd: false } },
    true,
    false,
    await window.newPage(),
    // Galata's stand-ins for these fail with the server when it restarts, and take an interrupt's empty answer for JSON.
    null,
    null,
    '',
    () => Promise.resolve(),
    null,
  );
}

async function openDesk(window: BrowserContext, lab: LabServer, kind: ServerKind): Promise<Desk> {
  const page = await openPage(window, lab);
  const notebook = new Notebook(page, lab, kind);
  await notebook.open();
  await notebook.run('%load_ext gpulayer');
  return { page, notebook };
}
