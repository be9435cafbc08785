// Starts the Chromium of the browser's benchmarks, lets one function use it, and prints what it gives as JSON. Playwright is that of
// labextension/ui-tests; the one argument is what benchmarks/browser.py asks.
import { createRequire } from 'node:module';

const ARGUMENTS = [
  '--no-sandbox',
  '--disable-gpu',
  '--disable-quic',
  '--no-first-run',
  '--disable-background-networking',
  '--disable-component-update',
  '--disable-sync',
];

export const uiTests = new URL('../labextension/ui-tests/', import.meta.url);

/** @param measure - takes a context of the browser and what was asked. */
export async function printMeasured(measure) {
  const { chromium } = createRequire(new URL('package.json', uiTests))('@playwright/test');
  const { browser: executablePath, ...asked } = JSON.parse(process.argv[2]);
  const browser = await chromium.launch({ executablePath, args: ARGUMENTS });
  try {
    const context = await browser.newContext({ viewport: { width: 1280, height: 1400 } });
    context.setDefaultTimeout(120_000);
    console.log(JSON.stringify(await measure(context, asked)));
  } finally {
    await browser.close();
  }
}
