import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';

const folder = join(__dirname, '..', '..');
const read = (path: string): string => readFileSync(join(folder, path), 'utf8');
const sheets = [...read('style/views.css').matchAll(/@import url\('(.+?)'\);/g)].map(found => found[1]!);

test("the views' sheet imports all there are, but those of the panel", () => {
  const others = ['index.css', 'panel.css', 'views.css'];
  const all = readdirSync(join(folder, 'style')).filter(name => name.endsWith('.css') && !others.includes(name));
  expect(all.sort()).toEqual([...sheets].sort());
});

test.each(sheets)('%s needs no variable of JupyterLab: each has a fallback', sheet => {
  const bare = [...read(`style/${sheet}`).matchAll(/var\(\s*(--jp-[\w-]+)\s*\)/g)].map(found => found[1]);
  expect(bare).toEqual([]);
});
