import { contrast, namedColour, readable, rgbOf } from '../../../src/views/logs/colours';
import { SHOWN_CHARACTERS, spansOf } from '../../../src/views/logs/line_spans';

const LIGHT = { background: [255, 255, 255], text: [0, 0, 0] } as const;

function drawn(
  text: string,
  pattern: RegExp | null = null,
  ground: Parameters<typeof spansOf>[2] = LIGHT,
): HTMLElement {
  const node = document.createElement('div');
  node.append(...spansOf(text, pattern, ground));
  return node;
}

test('text is never markup', () => {
  const node = drawn('<img src=x onerror=alert(1)> &amp; \x1b[1m<b>\x1b[0m');
  expect(node.querySelector('img, b')).toBeNull();
  expect(node.textContent).toBe('<img src=x onerror=alert(1)> &amp; <b>');
});

test('links are of http and https only, and show their whole target', () => {
  const links = drawn(
    'see (https://a.org/x?y=1), http://b.org. javascript:alert(1) file:///etc data:text/html,x',
  ).querySelectorAll('a');
  expect([...links].map(link => [link.getAttribute('href'), link.textContent])).toEqual([
    ['https://a.org/x?y=1', 'https://a.org/x?y=1'],
    ['http://b.org', 'http://b.org'],
  ]);
  expect(links[0]?.rel).toBe('noopener noreferrer');
});

test('what is found is marked across styles and inside links', () => {
  const node = drawn('\x1b[31mlo\x1b[0mss at https://x.org/loss', /loss/g);
  expect([...node.querySelectorAll('mark')].map(mark => mark.textContent)).toEqual(['lo', 'ss', 'loss']);
  expect(node.querySelector('a mark')).not.toBeNull();
  expect(node.textContent).toBe('loss at https://x.org/loss');
});

test('weights and colours', () => {
  const span = drawn('\x1b[1;4;31mred\x1b[0m plain').firstElementChild as HTMLElement;
  expect(span.className).toBe('jp-gpulayer-logs-bold jp-gpulayer-logs-underline');
  expect(span.style.color).toBe('rgb(205, 49, 49)');
  const reverse = drawn('\x1b[7mx\x1b[0m').firstElementChild as HTMLElement;
  expect([reverse.style.color, reverse.style.backgroundColor]).toEqual(['rgb(0, 0, 0)', 'rgb(204, 204, 204)']);
});

test('every colour can be read on every ground', () => {
  const names = [
    'ansi-yellow',
    'ansi-white',
    'ansi-black',
    'ansi-bright-green',
    'ansi-palette-16',
    'ansi-palette-231',
    'ansi-palette-244',
  ];
  const palette = Array.from({ length: 240 }, (_, index) => `ansi-palette-${index + 16}`);
  for (const ground of [
    [255, 255, 255],
    [17, 17, 17],
    [128, 128, 128],
    [205, 49, 49],
  ] as const) {
    for (const name of [...names, ...palette]) {
      const colour = namedColour(name, null);
      expect(colour).not.toBeNull();
      expect(contrast(readable(colour ?? [0, 0, 0], ground), ground)).toBeGreaterThanOrEqual(4.5);
    }
  }
});

test('colours as browsers write them', () => {
  expect(rgbOf('rgb(1, 2, 3)')).toEqual([1, 2, 3]);
  expect(rgbOf('rgba(1, 2, 3, 0)')).toBeNull();
  expect(rgbOf('10, 20, 30')).toEqual([10, 20, 30]);
  expect(rgbOf('')).toBeNull();
});

test('a long line is cut', () => {
  expect(drawn('x'.repeat(SHOWN_CHARACTERS + 10)).textContent).toHaveLength(SHOWN_CHARACTERS);
  expect(drawn(`\x1b[31m${'x'.repeat(SHOWN_CHARACTERS)}\x1b[0m${'y'.repeat(10)}`).textContent).toHaveLength(
    SHOWN_CHARACTERS,
  );
});

test('where a worker keeps a program is folded away, and stays in the text', () => {
  const prefix = '/tmp/home/workers/local-1/workspaces/4f59/9c1e/source/';
  const line = `  File \x1b[35m"${prefix}cell.py"\x1b[0m, line 3, in <module>`;
  const node = drawn(line);
  const folded = node.querySelector<HTMLElement>('.jp-gpulayer-logs-folded');
  expect(folded?.textContent).toBe(prefix);
  expect(folded?.title).toBe(`${prefix}cell.py`);
  expect(node.textContent).toBe(`  File "${prefix}cell.py", line 3, in <module>`);
  // What is looked for is shown.
  expect(drawn(line, /workspaces/g).querySelector('.jp-gpulayer-logs-folded')).toBeNull();
  const inLink = drawn('https://a.org/workspaces/a/b/source/c');
  expect(inLink.querySelector('a')?.textContent).toBe('https://a.org/workspaces/a/b/source/c');
  const withBlank = drawn('File "/Users/A B/workspaces/4f59/9c1e/source/pack/cell.py", line 3');
  expect(withBlank.querySelector('.jp-gpulayer-logs-folded')?.textContent).toBe(
    '/Users/A B/workspaces/4f59/9c1e/source/',
  );
  expect(drawn('/data/workspaces/mine/train.py').querySelector('.jp-gpulayer-logs-folded')).toBeNull();
});
