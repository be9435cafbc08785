/**
 * What a person accepted with `--rerun`, written into the metadata of the cell whose job needed it when the kernel says so. Whether
 * it counts is for the kernel to judge, which has signed it: here it is neither read nor understood. Runs in the browser.
 */
import type { Kernel } from '@jupyterlab/services';
import type { INotebookTracker, NotebookPanel } from '@jupyterlab/notebook';
import type { JSONValue } from '@lumino/coreutils';

export const COMM_TARGET = 'gpulayer.accepted';

const METADATA = 'gpulayer';
const FIELD = 'rerun';
const KEY = /^[0-9a-f]{16}$/;
const MARK = /^[0-9a-f]{32}$/;
/** A cell whose job needs more statements that were accepted is nothing that a person looks through. */
const MOST_MARKS = 1_000;

/** What is used of a cell's model. */
export interface AcceptingCell {
  readonly id: string;
  getMetadata(key: string): unknown;
  setMetadata(key: string, value: JSONValue): void;
  deleteMetadata(key: string): void;
}

/** What a kernel says: this cell's marks, or to forget all that its key has signed. */
export type Acceptance =
  { kind: 'keep'; cellId: string; key: string; marks: string[] } | { kind: 'forget'; key: string };

/** Hears the kernels of all notebooks that are open, and of those that will be. */
export function keepAcceptances(tracker: INotebookTracker): void {
  const begin = (panel: NotebookPanel): void => {
    const { context, sessionContext } = panel;
    const hear = (kernel: Kernel.IKernelConnection | null | undefined): void => {
      kernel?.registerCommTarget(COMM_TARGET, (_comm, message) => {
        const acceptance = acceptanceOf(message.content.data);
        // Not the panel's own: of several views of one notebook the kernel speaks to one, which may be closed.
        if (acceptance !== null && !context.isDisposed) {
          keep(acceptance, context.model.cells);
        }
      });
    };
    hear(sessionContext.session?.kernel);
    sessionContext.kernelChanged.connect((_sender, { newValue }) => hear(newValue));
  };
  tracker.forEach(begin);
  tracker.widgetAdded.connect((_sender, panel) => begin(panel));
}

/** What a message says; null of anything that is not exactly that. */
export function acceptanceOf(data: unknown): Acceptance | null {
  if (!isRecord(data) || typeof data['key'] !== 'string' || !KEY.test(data['key'])) {
    return null;
  }
  const { key, forget, cell_id: cellId, marks } = data;
  if (forget === true) {
    return { kind: 'forget', key };
  }
  const areMarks = Array.isArray(marks) && marks.length <= MOST_MARKS && marks.every(isMark);
  return typeof cellId === 'string' && areMarks ? { kind: 'keep', cellId, key, marks } : null;
}

/** Does what a kernel said; a cell that has it already is left alone, so that its notebook does not count as changed. */
export function keep(acceptance: Acceptance, cells: Iterable<AcceptingCell>): void {
  for (const cell of cells) {
    if (acceptance.kind === 'forget') {
      setMarks(cell, acceptance.key, []);
    } else if (cell.id === acceptance.cellId) {
      setMarks(cell, acceptance.key, acceptance.marks);
    }
  }
}

/** Other keys' marks are other people's, who share the notebook. */
function setMarks(cell: AcceptingCell, key: string, marks: string[]): void {
  const metadata = recordOf(cell.getMetadata(METADATA));
  const kept = recordOf(metadata[FIELD]);
  if (JSON.stringify(kept[key] ?? []) === JSON.stringify(marks)) {
    return;
  }
  const changed = { ...without(metadata, FIELD) };
  const rest = without(kept, key);
  if (marks.length > 0) {
    rest[key] = marks;
  }
  if (Object.keys(rest).length > 0) {
    changed[FIELD] = rest;
  }
  if (Object.keys(changed).length > 0) {
    cell.setMetadata(METADATA, changed as JSONValue);
  } else {
    cell.deleteMetadata(METADATA);
  }
}

function without(record: Record<string, unknown>, key: string): Record<string, unknown> {
  return Object.fromEntries(Object.entries(record).filter(([name]) => name !== key));
}

function recordOf(value: unknown): Record<string, unknown> {
  return isRecord(value) ? value : {};
}

function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

function isMark(value: unknown): value is string {
  return typeof value === 'string' && MARK.test(value);
}
