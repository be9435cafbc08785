/** Where a job's time went, from its record alone: the job's own steps and each rank's, as gpulayer/client/waterfall.py has them. */
import { MARKS, type JobStatus, type RankOutcome, type TaskStatus } from '../protocol';

/** One step; `start` and `end` are seconds since the job was created. */
export interface Span {
  step: string;
  start: number;
  end: number;
  /** Null for the job's own steps. */
  rank: number | null;
  /** The mark that ends it; null for the job's own steps. */
  mark: string | null;
  /** It goes on; `end` is the moment of asking. */
  soFar: boolean;
}

const STEPS: Record<string, string> = {
  fetched: 'fetch',
  equipped: 'environment',
  launched: 'launch',
  entered: 'start',
  imported: 'imports',
  met: 'rendezvous',
};
/** Marks that most jobs have no use for: where one is missing, its step did not take place. */
const SELDOM = ['equipped'];
const SCRIPT_MARKS = ['entered', 'imported', 'met', 'first_step'];

/** Marks up to which a rank is starting up; what comes after is its work. */
export const START_UP_MARKS: readonly string[] = [
  'fetched',
  'equipped',
  'launched',
  'entered',
  'imported',
  'met',
  'first_step',
];

/**
 * The job's own steps, then those of each rank in the order of nodes and ranks. A rank's mark is drawn at its task's
 * placement + mark. Clocks that disagree shorten a span, down to nothing; they turn none round.
 */
export function spansOf(status: JobStatus, now: number | null = null): Span[] {
  const placed = status.tasks.filter((task): task is Placed => task.placed_at !== null);
  const length = lengthOf(status, placed, now);
  const ofRanks = [...placed]
    .sort((one, other) => one.node - other.node)
    .flatMap(task =>
      [...task.ranks]
        .sort((one, other) => one.rank - other.rank)
        .flatMap(rank => rankSpans(rank, task.placed_at - status.created_at, length)),
    );
  return [...jobSpans(status, ofRanks, length), ...ofRanks];
}

type Placed = TaskStatus & { placed_at: number };

/** How long the whole is: to the job's end, which nothing exceeds, or to the latest of all that is known. */
function lengthOf(status: JobStatus, placed: readonly Placed[], now: number | null): number {
  if (status.ended_at !== null) {
    return Math.max(0, status.ended_at - status.created_at);
  }
  const moments = [now, status.started_at, ...placed.map(task => task.placed_at)].filter(moment => moment !== null);
  const marks = placed.flatMap(task =>
    task.ranks.map(rank => task.placed_at + Math.max(0, ...Object.values(rank.marks))),
  );
  return Math.max(0, ...[...moments, ...marks].map(moment => moment - status.created_at));
}

function jobSpans(status: JobStatus, ofRanks: readonly Span[], length: number): Span[] {
  const current = status.tasks.filter(task => task.attempt === status.attempt);
  const bases = current.flatMap(task => (task.placed_at === null ? [] : [task.placed_at - status.created_at]));
  const placed = bases.length ? Math.min(...bases) : null;
  const started = status.started_at === null ? null : status.started_at - status.created_at;
  const steps: [string, number | null][] = [
    [status.attempt === 1 ? 'queued' : 'earlier attempts, queued', placed ?? started],
    ['assigned', started],
    ['running', lastEnd(current, ofRanks)],
    ['finish', null], // its end is the job's
  ];
  if (placed === null && started !== null) {
    steps.splice(1, 1); // from a control plane that doesn't say when it placed the job
  }
  const found: Span[] = [];
  let at = 0;
  for (const [step, known] of steps) {
    const end = known === null ? length : Math.min(Math.max(at, known), length);
    found.push({ step, start: at, end, rank: null, mark: null, soFar: known === null && status.ended_at === null });
    at = end;
    if (known === null) {
      break;
    }
  }
  return found;
}

/** When the last rank had ended; null unless that is known of all. */
function lastEnd(current: readonly TaskStatus[], ofRanks: readonly Span[]): number | null {
  const ends = new Map(ofRanks.filter(span => span.mark === 'ended').map(span => [span.rank, span.end]));
  const ranks = current.flatMap(task => task.ranks.map(rank => rank.rank));
  const known = ranks.map(rank => ends.get(rank)).filter(end => end !== undefined);
  const allKnown = ranks.length > 0 && current.every(task => task.ranks.length > 0) && known.length === ranks.length;
  return allKnown ? Math.max(...known) : null;
}

function rankSpans(rank: RankOutcome, base: number, length: number): Span[] {
  const found: Span[] = [];
  let at = Math.min(Math.max(0, base), length);
  let previous: string | null = null;
  for (const mark of MARKS) {
    const moment = rank.marks[mark];
    if (moment !== undefined) {
      const end = Math.min(Math.max(at, base + moment), length);
      found.push({ step: stepName(previous, mark), start: at, end, rank: rank.rank, mark, soFar: false });
      at = end;
      previous = mark;
    }
  }
  return found;
}

/** What went on between two marks that are known; those between them, if any, are not. */
function stepName(previous: string | null, mark: string): string {
  if (mark in STEPS) {
    const passed = MARKS.slice(previous === null ? 0 : MARKS.indexOf(previous) + 1, MARKS.indexOf(mark) + 1);
    return passed
      .filter(one => one === mark || !SELDOM.includes(one))
      .map(one => STEPS[one])
      .join(' + ');
  }
  if (mark === 'first_step') {
    return 'before the first step';
  }
  if (mark === 'last_step') {
    return 'steps';
  }
  if (mark === 'ended' && previous === 'returned') {
    return 'teardown';
  }
  if (previous === 'last_step') {
    return 'after the last step';
  }
  // Without an entry it is no Python script of ours, or it ended before one.
  return previous !== null && SCRIPT_MARKS.includes(previous) ? 'script' : 'process';
}
