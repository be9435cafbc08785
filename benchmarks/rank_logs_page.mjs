// The page of rank_logs.py: the view of logs by itself, fed by hand, and the time between its frames.
import { execFileSync } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { printMeasured, uiTests } from './browser.mjs';

const bundled = (...what) =>
  execFileSync('../node_modules/.bin/esbuild', ['--bundle', '--log-level=error', ...what], {
    cwd: fileURLToPath(uiTests),
    maxBuffer: 2 ** 26,
  }).toString();

await printMeasured(async (context, { ranks, lines, repeats }) => {
  const style = bundled('../style/views.css');
  const script = bundled('../tests/support/logs_bench.ts', '--format=iife', '--global-name=bench', '--target=es2022');
  const printer = bundled('../tests/support/logs_printer.ts', '--target=es2022');
  const runs = [];
  for (let repeat = 0; repeat < repeats; repeat += 1) {
    const page = await context.newPage();
    const body = '<body class="jp-gpulayer-view" style="width: 1000px"></body>';
    await page.setContent(`<!doctype html><meta charset="utf-8"><style>${style}</style>${body}`);
    await page.addScriptTag({ content: script });
    const measure = ([ranks, lines, printer]) => window.bench.measureLogs(document.body, ranks, lines, printer);
    runs.push(await page.evaluate(measure, [ranks, lines, printer]));
    await page.close();
  }
  return { runs };
});
