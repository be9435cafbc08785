import type { INotebookTracker } from '@jupyterlab/notebook';
import { Signal } from '@lumino/signaling';
import { acceptanceOf, COMM_TARGET, keep, keepAcceptances } from '../src/acceptances';
import type { AcceptingCell } from '../src/acceptances';

const KEY = '0123456789abcdef';
const OTHER = 'fedcba9876543210';
const MARK = 'a'.repeat(32);
const MORE = 'b'.repeat(32);

class FakeCell implements AcceptingCell {
  changes = 0;

  constructor(
    readonly id: string,
    public metadata: Record<string, unknown> = {},
  ) {}

  getMetadata(key: string): unknown {
    return this.metadata[key];
  }

  setMetadata(key: string, value: unknown): void {
    this.changes += 1;
    this.metadata[key] = value;
  }

  deleteMetadata(key: string): void {
    this.changes += 1;
    this.metadata = Object.fromEntries(Object.entries(this.metadata).filter(([name]) => name !== key));
  }
}

describe('a kernel’s message', () => {
  it('is taken as it is meant', () => {
    expect(acceptanceOf({ cell_id: 'x', key: KEY, marks: [MARK] })).toEqual({
      kind: 'keep',
      cellId: 'x',
      key: KEY,
      marks: [MARK],
    });
    expect(acceptanceOf({ key: KEY, forget: true })).toEqual({ kind: 'forget', key: KEY });
  });

  it.each([
    ['nothing', null],
    ['a text', 'text'],
    ['a list', []],
    ['empty', {}],
    ['without marks', { cell_id: 'x', key: KEY }],
    ['of no key', { cell_id: 'x', key: '__proto__', marks: [] }],
    ['with odd marks', { cell_id: 'x', key: KEY, marks: ['<b>'] }],
    ['with a text of marks', { cell_id: 'x', key: KEY, marks: MARK }],
    ['of no cell', { cell_id: 7, key: KEY, marks: [] }],
    ['too long', { cell_id: 'x', key: KEY, marks: Array.from({ length: 1_001 }, () => MARK) }],
  ])('is ignored where it is %s', (_words, data) => {
    expect(acceptanceOf(data)).toBeNull();
  });
});

describe('the metadata of cells', () => {
  const keeping = (marks: string[]) => ({ kind: 'keep', cellId: 'x', key: KEY, marks }) as const;

  it('get the marks beside what stands there', () => {
    const cells = [new FakeCell('x', { gpulayer: { own: 1, rerun: { [OTHER]: [MORE] } } }), new FakeCell('y')];
    keep(keeping([MARK]), cells);
    expect(cells[0]?.metadata).toEqual({ gpulayer: { own: 1, rerun: { [OTHER]: [MORE], [KEY]: [MARK] } } });
    expect(cells[1]?.changes).toBe(0);
  });

  it('are left alone where nothing changes', () => {
    const cells = [new FakeCell('x', { gpulayer: { rerun: { [KEY]: [MARK] } } }), new FakeCell('y')];
    keep(keeping([MARK]), cells);
    keep({ kind: 'forget', key: OTHER }, cells);
    expect(cells.map(({ changes }) => changes)).toEqual([0, 0]);
  });

  it('hold nothing of it any more once it is forgotten', () => {
    const cells = [
      new FakeCell('x', { gpulayer: { rerun: { [KEY]: [MARK] } } }),
      new FakeCell('y', { gpulayer: { rerun: { [KEY]: [MARK], [OTHER]: [MORE] } } }),
    ];
    keep({ kind: 'forget', key: KEY }, cells);
    expect(cells.map(({ metadata }) => metadata)).toEqual([{}, { gpulayer: { rerun: { [OTHER]: [MORE] } } }]);
  });

  it('may hold anything beforehand', () => {
    const cells = [new FakeCell('x', { gpulayer: ['odd'] }), new FakeCell('x', { gpulayer: { rerun: 'odd' } })];
    keep(keeping([MARK]), cells);
    expect(cells.map(({ metadata }) => metadata)).toEqual([
      { gpulayer: { rerun: { [KEY]: [MARK] } } },
      { gpulayer: { rerun: { [KEY]: [MARK] } } },
    ]);
  });
});

type Hear = (comm: object, message: { content: { data: unknown } }) => void;

class FakeKernel {
  targets = new Map<string, Hear>();

  registerCommTarget(name: string, hear: Hear): void {
    this.targets.set(name, hear);
  }
}

class FakeContext {
  readonly kernelChanged = new Signal<this, { newValue: FakeKernel | null }>(this);
  session: { kernel: FakeKernel } | null = null;
}

it('each kernel of each notebook is heard', () => {
  const cell = new FakeCell('x');
  const file = { isDisposed: false, model: { cells: [cell] } };
  const panel = (context: FakeContext) => ({ sessionContext: context, context: file, content: { model: null } });
  const [open, added] = [new FakeContext(), new FakeContext()];
  const first = new FakeKernel();
  open.session = { kernel: first };
  const tracker = {
    forEach: (begin: (one: object) => void) => begin(panel(open)),
    widgetAdded: new Signal<object, object>({}),
  };
  keepAcceptances(tracker as unknown as INotebookTracker);
  tracker.widgetAdded.emit(panel(added));
  const [second, third] = [new FakeKernel(), new FakeKernel()];
  open.kernelChanged.emit({ newValue: null });
  open.kernelChanged.emit({ newValue: second });
  added.kernelChanged.emit({ newValue: third });
  for (const [number, kernel] of [first, second, third].entries()) {
    const data = { cell_id: 'x', key: KEY, marks: [`${number}`.repeat(32)] };
    kernel.targets.get(COMM_TARGET)?.({}, { content: { data } });
    expect(cell.metadata).toEqual({ gpulayer: { rerun: { [KEY]: data.marks } } });
    kernel.targets.get(COMM_TARGET)?.({}, { content: { data: { ...data, marks: 'odd' } } });
    expect(cell.metadata).toEqual({ gpulayer: { rerun: { [KEY]: data.marks } } });
  }
  const { changes } = cell;
  file.isDisposed = true;
  third.targets.get(COMM_TARGET)?.({}, { content: { data: { key: KEY, forget: true } } });
  expect(cell.changes).toBe(changes);
});
