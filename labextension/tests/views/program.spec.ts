import type { JobSource as SourceFiles } from '../../src/protocol';
import { Program } from '../../src/views/program';
import { FakeSource } from '../support/fake_source';

const FILES: SourceFiles = {
  files: [
    { path: 'helpers/data.py', size_bytes: 15, text: 'def make(): ...' },
    { path: 'manifest.json', size_bytes: 40, text: '{"cells": [{}, {}, {}], "modules": ["helpers", "tools"]}' },
    { path: 'main.py', size_bytes: 28, text: 'import torch\n<b>no markup</b>\n' },
    { path: 'cell.py', size_bytes: 4, text: 'fit()' },
    { path: 'weights.bin', size_bytes: 1_500_000, text: null },
  ],
  script: 'main.py',
  more_files: 2,
};

function program(files: () => Promise<SourceFiles> = async () => FILES): { shown: Program; words: (string | null)[] } {
  const source = new FakeSource();
  source.files = files;
  const words: (string | null)[] = [];
  const shown = new Program(source, said => words.push(said));
  document.body.replaceChildren(shown.node);
  return { shown, words };
}

const names = (node: Element): (string | null)[] =>
  [...node.querySelectorAll('.jp-gpulayer-file')].map(one => one.textContent);

test('what runs comes first, what GPUlayer wrote beside it last', async () => {
  const { shown, words } = program();
  await shown.read();
  expect(names(shown.node)).toEqual(['main.py', 'cell.py', 'helpers/data.py', 'weights.bin', 'manifest.json']);
  expect(words).toEqual(['3 cells, 2 modules']);
  expect(shown.node.querySelector('.jp-gpulayer-code-text')!.textContent).toBe('import torch\n<b>no markup</b>\n');
  expect(shown.node.querySelector('.jp-gpulayer-line-numbers')!.textContent).toBe('1\n2');
  expect(shown.node.textContent).toContain('main.py · 28 B · 2 lines');
  expect(shown.node.textContent).toContain('2 more files travel with the job');
});

test('what is no text says so', async () => {
  const { shown } = program();
  await shown.read();
  [...shown.node.querySelectorAll<HTMLElement>('.jp-gpulayer-file')]
    .find(one => one.textContent === 'weights.bin')!
    .click();
  expect(shown.node.textContent).toContain('weights.bin · 1.5 MB');
  expect(shown.node.textContent).toContain('No text, or too large to be shown here.');
  expect(shown.node.querySelectorAll('[aria-pressed=true]')).toHaveLength(1);
});

test('a line can be shown before the source is there, and after', async () => {
  Element.prototype.scrollIntoView = jest.fn();
  const { shown } = program();
  shown.show('helpers/data.py', 1);
  await shown.read();
  expect(shown.node.textContent).toContain('helpers/data.py · 15 B');
  const marked = (): HTMLElement => shown.node.querySelector('.jp-gpulayer-marked-line')!;
  expect(marked().style.getPropertyValue('--gpulayer-line')).toBe('0');
  shown.show('main.py', 2);
  expect(marked().style.getPropertyValue('--gpulayer-line')).toBe('1');
  expect(shown.node.querySelectorAll('.jp-gpulayer-marked-line')).toHaveLength(1);
});

test('a job without source, and one whose source cannot be read', async () => {
  const none = program(async () => ({ files: [], script: null, more_files: 0 }));
  await none.shown.read();
  expect(none.shown.node.textContent).toContain('No source travelled with this job.');
  let fails = true;
  const { shown } = program(async () =>
    fails ? Promise.reject({ message: 'The bundle is gone.', fix: null }) : FILES,
  );
  await shown.read();
  expect(shown.node.textContent).toContain('The bundle is gone. Try again');
  fails = false;
  await shown.read();
  expect(names(shown.node)).toHaveLength(5);
});

test('a manifest of the user is no manifest', async () => {
  const files = [
    { path: 'manifest.json', size_bytes: 1, text: '[1' },
    { path: 'main.py', size_bytes: 1, text: '' },
  ];
  const { shown, words } = program(async () => ({ files, script: 'main.py', more_files: 0 }));
  await shown.read();
  expect(words).toEqual(['2 files']);
});
