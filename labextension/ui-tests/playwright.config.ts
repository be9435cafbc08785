// Real Chromium against a real JupyterLab: one worker, since all tests share the machine's devices, and no second tries.
import { existsSync } from 'node:fs';
import { defineConfig } from '@playwright/test';

const chromium = [process.env.GPULAYER_CHROMIUM, '/usr/bin/chromium'].find(path => path && existsSync(path));

export default defineConfig({
  testDir: './tests',
  workers: 1,
  retries: 0,
  fullyParallel: false,
  forbidOnly: !!process.env.CI,
  timeout: 120_000,
  expect: { timeout: 30_000 },
  reporter: [['list']],
  outputDir: 'test-results',
  use: {
    actionTimeout: 20_000,
    viewport: { width: 1280, height: 900 },
    trace: 'retain-on-failure',
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
