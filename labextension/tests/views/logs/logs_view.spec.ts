import type { LogChunk } from '../../../src/protocol';
import { LogsView } from '../../../src/views/logs/logs_view';
import type { RankMark } from '../../../src/views/rank_rows';
import { FakeSource, logPage, Printing } from '../../support/fake_source';
import { HandScheduler } from './hand_scheduler';

let view: LogsView;
let source: FakeSource;
let scheduler: HandScheduler;
let printing: Printing;

/** What the browser would tell of the view. */
let resized: () => void;
let seen: (isInSight: boolean) => void;

beforeEach(() => {
  globalThis.ResizeObserver = class {
    constructor(on: ResizeObserverCallback) {
      resized = () => on([], this);
    }
    observe(): void {}
    unobserve(): void {}
    disconnect(): void {}
  };
  globalThis.IntersectionObserver = class {
    constructor(on: (entries: { isIntersecting: boolean }[]) => void) {
      seen = isIntersecting => on([{ isIntersecting }]);
    }
    observe(): void {}
    disconnect(): void {}
  } as unknown as typeof IntersectionObserver;
  source = new FakeSource();
  scheduler = new HandScheduler();
  printing = new Printing();
  view = new LogsView(source, scheduler);
  document.body.append(view.node);
  seen(true);
  scheduler.run();
});

afterEach(() => view.dispose());

function send(...chunks: LogChunk[]): void {
  source.sendLogs(logPage(chunks));
  scheduler.run();
}

function ranks(count: number, failed: number | null = null): RankMark[] {
  return Array.from({ length: count }, (_, rank) => ({
    rank,
    phase: rank === failed ? 'failed' : 'running',
    first: rank === failed,
  }));
}

function one<T extends HTMLElement>(selector: string): T {
  const found = view.node.querySelector<T>(selector);
  if (!found) {
    throw new Error(`nothing is ${selector}`);
  }
  return found;
}

const scroller = (): HTMLElement => one('.jp-gpulayer-logs-scroll');
const rows = (): HTMLElement[] => [...view.node.querySelectorAll<HTMLElement>('.jp-gpulayer-logs-row')];
const texts = (): (string | null)[] =>
  rows().map(row => row.querySelector('.jp-gpulayer-logs-text')?.textContent ?? null);
const said = (): string => one('.jp-gpulayer-logs-said').textContent ?? '';
const named = (label: string): HTMLButtonElement => one(`[aria-label="${label}"]`);

function scrollTo(top: number): void {
  scroller().scrollTop = top;
  scroller().dispatchEvent(new Event('scroll'));
  scheduler.run();
}

function press(target: Element, key: string, more: KeyboardEventInit = {}): void {
  target.dispatchEvent(new KeyboardEvent('keydown', { key, bubbles: true, cancelable: true, ...more }));
  scheduler.run();
}

function type(text: string): void {
  const box = one<HTMLInputElement>('.jp-gpulayer-logs-box');
  box.value = text;
  box.dispatchEvent(new Event('input'));
  scheduler.run();
}

test('what pours in is drawn at once, then twenty times a second, and what a person does without delay', () => {
  Array.from({ length: 4 }).forEach(() => scheduler.nextFrame()); // nothing was drawn for a while
  let draws = 0;
  const watching = jest.spyOn((view as unknown as { row: { ground(node: HTMLElement): void } }).row, 'ground');
  watching.mockImplementation(() => void draws++);
  for (let frame = 0; frame < 10; frame++) {
    source.sendLogs(logPage([printing.chunk(`line ${frame}\n`)]));
    while (scheduler.slice());
    scheduler.nextFrame();
  }
  expect(draws).toBe(3); // in 160 ms
  view.selectRank(0);
  scheduler.nextFrame();
  expect(draws).toBe(4);
});

test('asks for the end of the output, and says that there is none yet', () => {
  expect(source.logOptions).toEqual([{ rank: null, tailBytes: 2 * 1024 * 1024 }]);
  expect(one('.jp-gpulayer-logs-empty').textContent).toBe('No output yet');
  source.sendLogs(logPage([], true));
  scheduler.run();
  expect(one('.jp-gpulayer-logs-empty').textContent).toBe('Printed nothing');
  send(printing.chunk('hello\n'));
  expect(one('.jp-gpulayer-logs-empty').hidden).toBe(true);
  expect(texts()).toEqual(['hello']);
});

test('asks for nothing before it is in sight, and once then', () => {
  view.dispose();
  source = new FakeSource();
  view = new LogsView(source, scheduler);
  document.body.append(view.node);
  seen(false);
  expect(source.logOptions).toEqual([]);
  seen(true);
  seen(false);
  seen(true);
  expect(source.logOptions).toHaveLength(1);
});

test('of an ended job nothing is to be followed', () => {
  send(printing.chunk('line\n'.repeat(1000)));
  scrollTo(5000);
  expect(said()).toContain('paused');
  source.sendLogs(logPage([], true));
  scheduler.run();
  expect(said()).not.toContain('paused');
  expect(named('Follow the newest lines (End)').hidden).toBe(true);
});

test('few rows are in the page, however many lines there are', () => {
  send(printing.chunk('line\n'.repeat(50_000)));
  expect(rows().length).toBeGreaterThan(20);
  expect(rows().length).toBeLessThan(300);
  scrollTo(400_000);
  expect(rows().length).toBeLessThan(300);
  expect(rows()[0]?.style.top).toBe(`${Number(rows()[0]?.dataset['place']) * 18}px`);
});

test('what comes is followed until one scrolls up, and what one reads does not move', () => {
  send(printing.chunk('line\n'.repeat(1000)));
  expect(texts().at(-1)).toBe('line');
  expect(scroller().scrollTop).toBe(1000 * 18 - 360);
  expect(said()).toContain('following');
  scrollTo(5000);
  send(printing.chunk('more\n'.repeat(500)));
  expect(scroller().scrollTop).toBe(5000);
  expect(said()).toContain('paused');
  expect(said()).toContain('500 new lines');
  press(scroller(), 'End');
  expect(said()).toContain('following');
  expect(texts().at(-1)).toBe('more');
  scrollTo(5000);
  named('Follow the newest lines (End)').click();
  scheduler.run();
  expect(scroller().scrollTop).toBe(1500 * 18 - 360);
});

test('scrolling down to the end follows again', () => {
  send(printing.chunk('line\n'.repeat(1000)));
  scrollTo(5000);
  scrollTo(1000 * 18 - 360);
  expect(said()).toContain('following');
});

test('a rank is chosen by button and by arrows, and stderr is marked in words', () => {
  view.setRanks(ranks(3, 1));
  send(
    printing.chunk('zero\n', { rank: 0 }),
    printing.chunk('one\n', { rank: 1, stream: 'stderr' }),
    printing.chunk('go\n', { rank: null }),
  );
  expect(rows().map(row => row.querySelector('.jp-gpulayer-logs-rank')?.textContent)).toEqual(['r0', 'r1', 'launcher']);
  expect(rows()[1]?.querySelector('.jp-gpulayer-logs-err')?.textContent).toBe('err');
  const guilty = named('Rank 1 failed first');
  guilty.click();
  scheduler.run();
  expect(texts()).toEqual(['one']);
  expect(guilty.getAttribute('aria-pressed')).toBe('true');
  press(guilty, 'ArrowLeft');
  expect(texts()).toEqual(['zero']);
  expect(document.activeElement).toBe(named('Rank 0'));
  expect([...view.node.querySelectorAll('.jp-gpulayer-logs-ranks [tabindex="0"]')]).toEqual([document.activeElement]);
  view.selectRank(null);
  scheduler.run();
  expect(texts()).toEqual(['zero', 'one', 'go']);
});

test('of many ranks those that failed are buttons, all are in a list', () => {
  view.setRanks(ranks(64, 7));
  expect(view.node.querySelectorAll('.jp-gpulayer-logs-ranks button')).toHaveLength(2);
  send(printing.chunk('forty\n', { rank: 40 }), printing.chunk('seven\n', { rank: 7 }));
  const list = one<HTMLSelectElement>('.jp-gpulayer-logs-select');
  expect(list.options).toHaveLength(65);
  list.value = '40';
  list.dispatchEvent(new Event('change'));
  scheduler.run();
  expect(texts()).toEqual(['forty']);
  view.setRanks(ranks(64, 8));
  expect(one<HTMLSelectElement>('.jp-gpulayer-logs-select').value).toBe('40');
});

test('one rank alone has no choice', () => {
  view.setRanks(ranks(1));
  send(printing.chunk('one\n'));
  expect(one('.jp-gpulayer-logs-ranks').hidden).toBe(true);
  expect(view.node.querySelector('.jp-gpulayer-logs-rank')).toBeNull();
});

test('a text is found, marked and counted, forwards and backwards', () => {
  send(printing.chunk(Array.from({ length: 1000 }, (_, n) => `line ${n}${n % 100 === 0 ? ' Loss' : ''}\n`).join('')));
  press(scroller(), '/');
  expect(document.activeElement).toBe(one('.jp-gpulayer-logs-box'));
  type('loss');
  const count = (): string => one('.jp-gpulayer-logs-count').textContent ?? '';
  const current = (): string | null => one('.jp-mod-current .jp-gpulayer-logs-text').textContent;
  expect(count()).toBe('1 of 10');
  expect(current()).toBe('line 0 Loss');
  expect(one('.jp-mod-current mark').textContent).toBe('Loss');
  press(one('.jp-gpulayer-logs-box'), 'Enter');
  expect(current()).toBe('line 100 Loss');
  press(one('.jp-gpulayer-logs-box'), 'Enter', { shiftKey: true });
  press(one('.jp-gpulayer-logs-box'), 'Enter', { shiftKey: true });
  expect(count()).toBe('10 of 10');
  press(scroller(), 'n');
  expect(count()).toBe('1 of 10');
  press(scroller(), 'N');
  expect(current()).toBe('line 900 Loss');
  named('Match case').click();
  scheduler.run();
  expect(count()).toBe('no match');
  press(one('.jp-gpulayer-logs-box'), 'Escape');
  expect(one('.jp-gpulayer-logs-find').hidden).toBe(true);
  expect(view.node.querySelector('mark')).toBeNull();
  expect(document.activeElement).toBe(scroller());
});

test('what lies before is counted, loaded and said not to be searched', async () => {
  const early = printing.chunk('early\n'.repeat(30));
  send(printing.chunk('late\n'.repeat(200)));
  source.earlier = async () => logPage([early]);
  expect(one('.jp-gpulayer-logs-earlier').textContent).toContain('30 earlier lines');
  expect(rows().at(-1)?.querySelector('.jp-gpulayer-logs-number')?.textContent).toBe('230');
  press(scroller(), 'f', { ctrlKey: true });
  type('early');
  expect(one('.jp-gpulayer-logs-count').textContent).toBe('no match');
  expect(one('.jp-gpulayer-logs-left').textContent).toBe('30 earlier lines are not searched');
  named('Load earlier lines, to search them too').click();
  await scheduler.settle();
  expect(one('.jp-gpulayer-logs-earlier').hidden).toBe(true);
  expect(one('.jp-gpulayer-logs-left').textContent).toBe('');
  expect(one('.jp-gpulayer-logs-count').textContent).toBe('30 lines');
});

test('scrolling to the top loads what lies before, and what one reads stays in its place', async () => {
  const early = printing.chunk('early\n'.repeat(30));
  send(printing.chunk('late\n'.repeat(200)));
  source.earlier = async () => logPage([early]);
  scrollTo(100);
  expect(source.earlierAsked).toEqual([]);
  scrollTo(10);
  await scheduler.settle();
  expect(source.earlierAsked).toHaveLength(1);
  expect(scroller().scrollTop).toBe(10 + 30 * 18);
});

test('lines that never came are said, and the whole log can be had', () => {
  send(printing.chunk('one\n'));
  printing.chunk('lost\n'.repeat(12));
  send(printing.chunk('two\n'));
  expect(texts()).toEqual(['one', '12 lines skipped · download', 'two']);
  expect(one<HTMLAnchorElement>('.jp-mod-note a').href).toBe('http://localhost/log.txt?rank=0&form=plain');
  expect(named('Download the whole log').getAttribute('href')).toContain('rank=&form=plain');
});

test('a long line can be seen whole', () => {
  send(printing.chunk(`${'x'.repeat(6000)}\n`));
  expect(texts()[0]).toHaveLength(5000);
  named('Show the whole line of 6\u2009000 characters').click();
  expect(one('pre').textContent).toHaveLength(6000);
  expect(document.activeElement).toBe(one('pre'));
  press(one('pre'), 'Escape');
  expect(one('.jp-gpulayer-logs-whole').hidden).toBe(true);
});

test('what is selected is copied from the lines, whatever of it is in the page', () => {
  send(printing.chunk(Array.from({ length: 500 }, (_, n) => `line ${n}\n`).join('')));
  scrollTo(0);
  const text = (place: number): Node => one(`[data-place="${place}"] .jp-gpulayer-logs-text`).firstChild as Node;
  document.getSelection()?.setBaseAndExtent(text(1), 2, text(3), 4);
  document.dispatchEvent(new Event('selectionchange'));
  scrollTo(4000);
  expect(view.node.querySelector('[data-place="1"]')).not.toBeNull();
  const copied: Record<string, string> = {};
  const event = new Event('copy', { bubbles: true, cancelable: true });
  Object.assign(event, { clipboardData: { setData: (kind: string, data: string) => (copied[kind] = data) } });
  scroller().dispatchEvent(event);
  expect(copied).toEqual({ 'text/plain': 'ne 1\nline 2\nline' });
  expect(event.defaultPrevented).toBe(true);
  expect(said()).toContain('paused');
});

/** As a browser lays it out; with no height it is off the page, or in a part that is not shown. */
function layOut(height: number): void {
  Object.defineProperty(scroller(), 'clientHeight', { configurable: true, value: height });
  resized();
  scheduler.run();
}

test('what one reads stays in its place when the view is taken off the page and put back', () => {
  send(printing.chunk('line\n'.repeat(1000)));
  layOut(360);
  scrollTo(5000);
  scroller().scrollTop = 0; // as a browser does with what is taken off
  layOut(0);
  scrollTo(0);
  send(printing.chunk('more\n'.repeat(10)));
  expect(source.earlierAsked).toEqual([]);
  layOut(360);
  expect(scroller().scrollTop).toBe(5000);
  expect(said()).toContain('paused10 new lines');
  expect(rows()[0]?.dataset['place']).toBe(String(Math.floor(5000 / 18) - 20));
});

test('a view that follows is at the end when it is put back', () => {
  send(printing.chunk('line\n'.repeat(1000)));
  layOut(360);
  scroller().scrollTop = 0;
  layOut(0);
  layOut(360);
  expect(scroller().scrollTop).toBe(1000 * 18 - 360);
  expect(said()).toContain('following');
});

test('out of sight no rows are drawn, but it takes the room that it will need', () => {
  seen(false);
  send(printing.chunk('line\n'.repeat(5)));
  expect(rows()).toEqual([]);
  expect(scroller().style.getPropertyValue('--gpulayer-logs-height')).toBe('calc(90px + 18px)');
  expect(said()).toContain('5 lines');
  seen(true);
  scheduler.run();
  expect(rows()).toHaveLength(5);
});

test('the focus goes to the lines when the button that had it is gone', () => {
  send(printing.chunk('line\n'.repeat(1000)));
  scrollTo(5000);
  const follow = named('Follow the newest lines (End)');
  follow.focus();
  follow.click();
  scheduler.run();
  expect(follow.hidden).toBe(true);
  expect(document.activeElement).toBe(scroller());
});

test('rows are drawn again when the page has other colours, and for nothing else', async () => {
  send(printing.chunk('\x1b[31mline\x1b[0m\n'));
  const span = rows()[0];
  document.body.classList.add('a-cursor');
  await scheduler.settle();
  expect(rows()[0]).toBe(span);
  document.body.style.backgroundColor = 'rgb(0, 0, 0)';
  await scheduler.settle();
  expect(rows()[0]).not.toBe(span);
  document.body.removeAttribute('style');
});

test('lines are not read aloud as they come, and can be reached by keyboard', () => {
  expect(scroller().getAttribute('role')).toBe('log');
  expect(scroller().getAttribute('aria-live')).toBe('off');
  expect(scroller().tabIndex).toBe(0);
});

test('nothing is left when it is gone', () => {
  view.dispose();
  expect(source.open).toBe(0);
  source.sendLogs(logPage([printing.chunk('late\n')]));
  scheduler.run();
  expect(document.body.contains(view.node)).toBe(false);
});
