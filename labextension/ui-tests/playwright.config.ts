// Real Chromium against real Jupyter servers: one worker, since all tests share the machine's devices, and no second tries.
import { existsSync } from 'node:fs';
import { defineConfig } from '@playwright/test';
import type { ServerKind } from './tests/support/server';

const chromium = [process.env.GPULAYER_CHROMIUM, '/usr/bin/chromium'].find(path => path && existsSync(path));
/** `notebook`: the tests that hold in every front end, in Notebook 7; with GPULAYER_PYTHON, of another environment. */
const isNotebook7 = process.env.GPULAYER_FRONT_END === 'notebook';
const MATRIX = /@matrix/;

interface Options {
  kind: ServerKind;
}

export default defineConfig<object, Options>({
  testDir: './tests',
  workers: 1,
  retries: 0,
  fullyParallel: false,
  forbidOnly: !!process.env.CI,
  timeout: 120_000,
  expect: { timeout: 30_000 },
  reporter: [['list']],
  outputDir: 'test-results',
  projects: isNotebook7
    ? [{ name: 'notebook', grep: MATRIX, use: { kind: 'notebook' } }]
    : [
        { name: 'lab', testIgnore: /under_a_prefix/, use: { kind: 'lab' } },
        { name: 'user', testMatch: /under_a_prefix/, use: { kind: 'user' } },
      ],
  use: {
    actionTimeout: 20_000,
    // Pictures of each step would take a core of two.
    trace: { mode: 'retain-on-failure', screenshots: false, snapshots: false },
    screenshot: 'only-on-failure',
    launchOptions: {
      // Without one the browser is Playwright's own, from its package's installer.
      ...(chromium === undefined ? {} : { executablePath: chromium }),
      args: [
        '--no-sandbox',
        '--disable-gpu',
        '--disable-quic',
        '--no-first-run',
        '--disable-background-networking',
        '--disable-component-update',
        '--disable-sync',
      ],
    },
  },
});
