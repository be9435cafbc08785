import { element } from '../../src/views/elements';
import { Tabs } from '../../src/views/tabs';

let tabs: Tabs;
let shown: string[];

beforeEach(() => {
  shown = [];
  const tab = (id: string): ConstructorParameters<typeof Tabs>[1][number] => ({
    id,
    label: id.toUpperCase(),
    draw: () => element('p', {}, `drawn ${id}`),
    onShown: is => shown.push(`${id} ${is ? 'in' : 'out'}`),
  });
  tabs = new Tabs('Views', [tab('a'), tab('b'), tab('c')]);
  document.body.replaceChildren(tabs.list, tabs.panels);
});

const control = (id: string): HTMLButtonElement =>
  [...tabs.list.querySelectorAll('button')].find(one => one.textContent === id.toUpperCase())!;
const panel = (id: string): HTMLElement => document.getElementById(control(id).getAttribute('aria-controls')!)!;
const press = (key: string): void => void tabs.list.dispatchEvent(new KeyboardEvent('keydown', { key }));

test('the first that is offered is open, each is drawn when it is first opened', () => {
  expect(tabs.list.hidden).toBe(true);
  tabs.offer('a', true);
  expect(tabs.list.hidden).toBe(true);
  tabs.offer('c', true);
  expect(tabs.list.hidden).toBe(false);
  expect([tabs.selected, panel('a').textContent, panel('c').textContent]).toEqual(['a', 'drawn a', '']);
  tabs.select('c');
  tabs.select('a');
  tabs.select('c');
  expect(panel('c').children).toHaveLength(1);
  expect(shown).toEqual(['a in', 'a out', 'c in', 'c out', 'a in', 'a out', 'c in']);
});

test('roles and relations are as readers need them', () => {
  tabs.offer('a', true);
  tabs.offer('b', true);
  expect([control('a').getAttribute('aria-selected'), control('b').getAttribute('aria-selected')]).toEqual([
    'true',
    'false',
  ]);
  expect([control('a').tabIndex, control('b').tabIndex]).toEqual([0, -1]);
  expect(panel('a').getAttribute('aria-labelledby')).toBe(control('a').id);
  expect([panel('a').hidden, panel('b').hidden]).toEqual([false, true]);
});

test('arrow keys go round those that are offered', () => {
  tabs.offer('a', true);
  tabs.offer('c', true);
  control('a').focus();
  press('ArrowRight');
  expect(document.activeElement).toBe(control('c'));
  press('ArrowRight');
  expect(tabs.selected).toBe('a');
  press('End');
  expect(tabs.selected).toBe('c');
  press('Home');
  expect(tabs.selected).toBe('a');
});

test('one that goes away leaves its place, one that is not offered cannot be opened', () => {
  tabs.offer('a', true);
  tabs.offer('b', true);
  tabs.select('c');
  expect(tabs.selected).toBe('a');
  tabs.offer('a', false);
  expect(tabs.selected).toBe('b');
});

test('the open tab is in sight where not all of them fit', () => {
  const places: [Element, number, number][] = [
    [tabs.list, 0, 100],
    [control('c'), 90, 150],
    [control('a'), -50, 10],
  ];
  for (const [one, left, right] of places) {
    one.getBoundingClientRect = () => ({ left, right }) as DOMRect;
  }
  ['a', 'b', 'c'].forEach(id => tabs.offer(id, true));
  tabs.list.scrollLeft = 0;
  tabs.select('c');
  expect(tabs.list.scrollLeft).toBe(50);
  tabs.select('a');
  expect(tabs.list.scrollLeft).toBe(0);
});
