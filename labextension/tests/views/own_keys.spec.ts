import { ownKeys } from '../../src/views/own_keys';

test('keys without modifiers belong to what has the focus, shortcuts to the page', () => {
  const node = document.createElement('div');
  const inner = document.createElement('button');
  node.append(inner);
  document.body.append(node);
  const suppressed: boolean[] = [];
  // As JupyterLab does: on the document, before any element hears of it.
  document.addEventListener('keydown', () => suppressed.push(node.hasAttribute('data-lm-suppress-shortcuts')), true);
  const press = (key: string, more: KeyboardEventInit = {}): boolean | undefined => {
    inner.dispatchEvent(new KeyboardEvent('keydown', { key, bubbles: true, ...more }));
    return suppressed.at(-1);
  };
  const keys = ownKeys(node, { finds: true });
  expect(press('ArrowUp')).toBe(false);
  inner.focus();
  expect(press('ArrowUp')).toBe(true);
  expect(press('s', { ctrlKey: true })).toBe(false);
  expect(press('f', { ctrlKey: true })).toBe(true);
  inner.blur();
  expect(press('x')).toBe(false);
  inner.focus();
  keys.dispose();
  expect(press('x')).toBe(false);
});
