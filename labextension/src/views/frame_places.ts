/**
 * Which frame of a stack is the user's own, how its place is written, and what a rank was doing: as
 * gpulayer/client/frame_places.py and other_ranks.py say it.
 */
import type { Frame, JobStatus, RankOutcome, ThreadStack } from '../protocol';
import type { Translator } from './source';
import { ranges } from './units';

export const ACTIVITIES_NAMED = 6;

// A rank's path is one of another machine, so the name has to do.
const LIBRARY = /\/(?:site|dist)-packages\/|\/lib(?:64)?\/python\d[^/]*\/|\/lib\/python\d+\.zip\/|^<|^\?\?\?$/;
const INSTALLED = /^.*\/(?:(?:site|dist)-packages|lib(?:64)?\/python\d[^/]*)\//;
const WORKSPACE = /^(?:.*\/workspaces\/[^/]+\/[^/]+|.*?)\/source\//;
const GPULAYER = /\/gpulayer\/(?:runtime|pytorch|bundle)\/[^/]+\.py$/;
const TORCH = /\/torch\//;
const SAYS_NOTHING = /^(?:_.*|<.*|wrapper|wrapped|inner|decorate_context)$/;

/** Whether its code is the user's, as far as the path tells. */
export function isOwn(frame: Frame): boolean {
  return !LIBRARY.test(frame.file) && !GPULAYER.test(frame.file);
}

/** The innermost frame of code that is in no installed package; the innermost of all where there is none. */
export function ownFrame(frames: readonly Frame[]): Frame | null {
  for (let index = frames.length - 1; index >= 0; index -= 1) {
    const frame = frames[index];
    if (frame && isOwn(frame)) {
      return frame;
    }
  }
  return frames[frames.length - 1] ?? null;
}

/** What the user's innermost line was calling, in one word; null where nothing says it. */
export function calledFromThere(frames: readonly Frame[]): string | null {
  const own = ownFrame(frames);
  if (own === null || own === frames[frames.length - 1]) {
    return null;
  }
  const named = frames.slice(frames.lastIndexOf(own) + 1).filter(frame => !SAYS_NOTHING.test(frame.function));
  const torch = named.filter(frame => TORCH.test(frame.file));
  const chosen = torch.length ? torch : named;
  return chosen[chosen.length - 1]?.function ?? null;
}

/** The path within the job's source or the installed packages; as it is for anything else. */
export function shortFile(file: string): string {
  for (const known of [INSTALLED, WORKSPACE]) {
    const found = known.exec(file);
    if (found) {
      return file.slice(found[0].length);
    }
  }
  return file;
}

/** The path of a file of the job's source, as `readSource` names it; null for any other. */
export function sourcePath(file: string): string | null {
  const found = isOwn({ file, line: 0, function: '', text: null }) ? WORKSPACE.exec(file) : null;
  return found ? file.slice(found[0].length) : null;
}

/** `main.py:14`. */
export function fileAndLine(frame: Frame): string {
  return `${shortFile(frame.file)}:${frame.line}`;
}

/** `main.py:14 in train`, or `Cell [8], line 6 in train` where that is known; without the function for a line of the module itself. */
export function inFunction(frame: Frame, trans: Translator, cells: CellPlaces | null = null): string {
  const place = cells?.name(frame, trans) ?? fileAndLine(frame);
  return frame.function === '<module>' ? place : trans.__('%1 in %2', place, frame.function);
}

const LINES = /^(.+):(\d{1,9})-(\d{1,9}) is cell (\d{1,9}) from line (\d{1,9})$/;

/** Which lines of a program are of which cell of its notebook: from the bundle's manifest and the cells that the job names. */
export class CellPlaces {
  private readonly pieces: { file: string; first: number; last: number; cell: number; line: number }[] = [];

  constructor(manifest: string, cells: readonly number[]) {
    for (const text of manifestLines(manifest)) {
      const [, file, first, last, number, line] = LINES.exec(text) ?? [];
      const cell = cells[Number(number) - 1];
      if (file !== undefined && cell !== undefined) {
        this.pieces.push({ file, first: Number(first), last: Number(last), cell, line: Number(line) });
      }
    }
  }

  /** `Cell [8], line 6`; null for a line of no cell. */
  name(frame: Frame, trans: Translator): string | null {
    const path = sourcePath(frame.file);
    const piece = this.pieces.find(each => each.file === path && each.first <= frame.line && frame.line <= each.last);
    return piece ? trans.__('Cell [%1], line %2', piece.cell, piece.line + frame.line - piece.first) : null;
  }
}

function manifestLines(manifest: string): string[] {
  try {
    const { lines } = (JSON.parse(manifest) ?? {}) as { lines?: unknown };
    return Array.isArray(lines) ? lines.filter(line => typeof line === 'string') : [];
  } catch {
    return []; // not a notebook's program
  }
}

/** The main thread's stack, or the first where none is known to be it. */
export function mainStack(stacks: readonly ThreadStack[]): ThreadStack | null {
  return stacks.find(stack => stack.is_main) ?? stacks[0] ?? null;
}

/** `in all_reduce, main.py:14` or `at main.py:14 in train`; null where no stack is known. */
export function activityOf(
  stacks: readonly ThreadStack[],
  trans: Translator,
  cells: CellPlaces | null = null,
): string | null {
  const main = mainStack(stacks);
  if (main === null) {
    return null;
  }
  const own = ownFrame(main.frames);
  if (own === null) {
    return trans.__('starting or ending'); // its main thread held no line of the script
  }
  const called = calledFromThere(main.frames);
  return called === null
    ? trans.__('at %1', inFunction(own, trans, cells))
    : trans.__('in %1, %2', called, cells?.name(own, trans) ?? fileAndLine(own));
}

/** All outcomes of a job in the order of ranks. */
export function outcomesOf(status: JobStatus): RankOutcome[] {
  return status.tasks.flatMap(task => task.ranks).sort((one, other) => one.rank - other.rank);
}

/** How those ended that did not fail first, in a line; then what the stopped ones were doing, a line for all that did the same. */
export function otherRanks(status: JobStatus, trans: Translator, cells: CellPlaces | null = null): string[] {
  const guilty = status.failure?.rank ?? null;
  const ranks = outcomesOf(status);
  return [
    ...howTheyEnded(
      ranks.filter(rank => rank.rank !== guilty),
      guilty !== null,
      trans,
    ),
    ...whatTheyDid(ranks, trans, cells),
  ];
}

function howTheyEnded(others: readonly RankOutcome[], isOneGuilty: boolean, trans: Translator): string[] {
  const stopped = others.filter(rank => rank.collateral);
  if (!stopped.length) {
    return [];
  }
  const ended = others.filter(rank => !rank.collateral && (rank.returned || rank.exit_code === 0));
  const failed = others.filter(rank => !stopped.includes(rank) && !ended.includes(rank));
  const numbers = ranges(stopped.map(rank => rank.rank));
  const parts = [
    isOneGuilty ? trans.__('The other ranks were stopped: %1', numbers) : trans.__('Stopped ranks: %1', numbers),
  ];
  if (ended.length) {
    parts.push(trans.__('had ended: %1', ranges(ended.map(rank => rank.rank))));
  }
  if (failed.length) {
    parts.push(trans.__('failed as well: %1', ranges(failed.map(rank => rank.rank))));
  }
  return [`${parts.join('; ')}.`];
}

/** Of a job whose time was up the first rank too: it failed by nothing else. */
function whatTheyDid(ranks: readonly RankOutcome[], trans: Translator, cells: CellPlaces | null): string[] {
  const doing = new Map<string, number[]>();
  for (const rank of ranks) {
    const activity = activityOf(rank.stacks, trans, cells);
    if (activity !== null) {
      doing.set(activity, [...(doing.get(activity) ?? []), rank.rank]);
    }
  }
  const told = ([activity, group]: [string, number[]]): string =>
    group.length === 1
      ? trans.__('Rank %1 was %2.', ranges(group), activity)
      : trans.__('Ranks %1 were %2.', ranges(group), activity);
  const groups = [...doing];
  const lines = groups.slice(0, ACTIVITIES_NAMED).map(told);
  const unnamed = groups.slice(ACTIVITIES_NAMED).flatMap(([, group]) => group);
  if (unnamed.length) {
    lines.push(told([trans.__('elsewhere'), unnamed.sort((one, other) => one - other)]));
  }
  return lines;
}
