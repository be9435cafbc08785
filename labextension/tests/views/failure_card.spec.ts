import type { Failure, JobStatus } from '../../src/protocol';
import { FailureCard, failureTitle } from '../../src/views/failure_card';
import { CellPlaces } from '../../src/views/frame_places';
import { plainTranslator } from '../support/fake_source';
import { failed, killed, many, running } from '../support/jobs';

const texts = (node: Element, selector: string): (string | null)[] =>
  [...node.querySelectorAll(selector)].map(one => one.textContent);

function withFailure(values: Partial<Failure>): JobStatus {
  const status = failed();
  return { ...status, failure: { ...status.failure!, error: null, exit_code: null, signal: null, ...values } };
}

test('it says which rank failed first, where, what stood there, and what became of the others', () => {
  const show = jest.fn();
  const card = new FailureCard(plainTranslator, show);
  card.update(failed());
  expect(card.node.querySelector('.jp-gpulayer-failure-title')?.textContent).toBe(
    'Rank 1 on gpu-a (node 0, cuda:1) raised ValueError: shapes (64, 10) and (32, 10) differ',
  );
  expect(texts(card.node, '.jp-gpulayer-failure-place')).toEqual([
    'main.py:14 in train_steploss = criterion(model(x), y[:32])',
  ]);
  expect(texts(card.node, '.jp-gpulayer-failure-others')).toEqual([
    'The other ranks were stopped: 0, 2, 3.',
    'Ranks 0, 2, 3 were in all_reduce, main.py:16.',
  ]);
  expect(texts(card.node, 'summary')).toEqual(['Traceback of rank 1', 'What the ranks were doing: their stacks']);
  card.node.querySelector<HTMLButtonElement>('.jp-gpulayer-failure-place button')!.click();
  expect(show).toHaveBeenCalledWith('main.py', 14);
});

test('equal stacks are shown once', () => {
  const card = new FailureCard(plainTranslator, null);
  card.update(many());
  expect(texts(card.node, '.jp-gpulayer-stack-of')).toEqual(['Ranks 8–36, 38–49, 51–63', 'Ranks 0–4, 6, 7']);
});

test('a rank that a signal ended: its name, why, and its last lines open', () => {
  const card = new FailureCard(plainTranslator, null);
  card.update(killed());
  expect(card.node.textContent).toContain('Rank 1 on gpu-a (node 0, cuda:1) was ended by SIGKILL (signal 9)');
  expect(card.node.textContent).toContain("The kernel's out-of-memory killer did it");
  const fold = card.node.querySelector('details')!;
  expect(fold.open).toBe(true);
  expect(fold.textContent).toBe('The last lines of rank 1epoch 1\nloading shard 7 of 9');
});

test.each<[Partial<Failure>, string]>([
  [{ exit_code: 3 }, 'Rank 1 on gpu-a (node 0, cuda:1) exited with code 3'],
  [{ reason: 'launcher', rank: null, device: null, exit_code: 1 }, 'The launcher on gpu-a (node 0) exited with code 1'],
  [
    { reason: 'lost', rank: null, device: null, message: "worker 'gpu-a' was not heard of for 30 s" },
    "Worker 'gpu-a' was not heard of for 30 s (on gpu-a (node 0))",
  ],
  [{ reason: 'timeout', rank: null, device: null, node: null, worker: null }, 'Ran out of time'],
])('%p is titled %p', (values, title) => {
  expect(failureTitle(withFailure(values), plainTranslator)).toBe(title);
});

test('what a rank said is text, whatever it looks like', () => {
  const status = failed();
  const message = '<img src=x onerror=alert(1)>\nsecond <b>line</b>';
  const card = new FailureCard(plainTranslator, null);
  card.update({ ...status, failure: { ...status.failure!, error: { ...status.failure!.error!, message } } });
  expect(card.node.querySelector('img, b')).toBeNull();
  expect(card.node.querySelector('.jp-gpulayer-failure-message')?.textContent).toBe('second <b>line</b>');
});

test('an update of something else leaves what is unfolded as it is', () => {
  const card = new FailureCard(plainTranslator, null);
  card.update(failed());
  card.node.querySelector('details')!.open = true;
  card.update({ ...failed(), revision: 10 });
  expect(card.node.querySelector('details')!.open).toBe(true);
  card.update(running());
  expect(card.node.hidden).toBe(true);
});

test('places in a program made of cells are told as lines of the cells', () => {
  const lines = [
    'main.py:12-14 is cell 1 from line 4',
    'main.py:16-16 is cell 2 from line 1',
    'main.py:17-18 is cell 9 from line 1',
  ];
  const card = new FailureCard(plainTranslator, jest.fn());
  card.update(failed());
  card.setCells(new CellPlaces(JSON.stringify({ lines: [...lines, 7, 'no line'] }), [8, 12]));
  expect(texts(card.node, '.jp-gpulayer-failure-place')).toEqual([
    'Cell [8], line 6 in train_steploss = criterion(model(x), y[:32])',
  ]);
  expect(texts(card.node, '.jp-gpulayer-failure-others')[1]).toBe(
    'Ranks 0, 2, 3 were in all_reduce, Cell [12], line 1.',
  );
});

test.each(['', 'no JSON', '[]', 'null', '{"lines": 3}'])(
  'a manifest that says nothing changes nothing: %s',
  manifest => {
    const card = new FailureCard(plainTranslator, null);
    card.setCells(new CellPlaces(manifest, [8]));
    card.update(failed());
    expect(texts(card.node, '.jp-gpulayer-failure-place')[0]).toContain('main.py:14 in train_step');
  },
);
