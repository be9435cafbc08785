/** What the header says of a job, in words made from its record. Pure; what may be done with it is `header` and `ways_out`. */
import type { JobStatus } from '../protocol';
import { outcomesOf } from './frame_places';
import type { Translator } from './source';
import { phaseOf, phaseWord, type Phase } from './state_marks';
import { age, clock, took, value } from './units';

export function phaseOfStatus(status: JobStatus): Phase {
  return phaseOf(status, status.waiting?.reason);
}

export function nodeCount(status: JobStatus): number {
  return status.spec.kind === 'distributed' ? status.spec.nodes : 1;
}

/** How many ranks the job has; a command is rank 0. */
export function worldSize(status: JobStatus): number {
  return status.spec.kind === 'distributed' ? status.spec.nodes * status.spec.devices : 1;
}

/** `running 0:42`, `failed after 12 s`, `cancelled`. */
export function stateWords(status: JobStatus, now: number, trans: Translator): string {
  const phase = phaseOfStatus(status);
  const word = phaseWord(phase, trans);
  if (status.ended_at !== null) {
    const from = status.started_at;
    return from === null ? word : trans.__('%1 after %2', word, took(status.ended_at - from));
  }
  const since = status.state === 'queued' ? status.created_at : status.started_at;
  return since === null ? word : `${word} ${clock(now - since)}`;
}

/** `2 nodes × 2 cuda`. */
export function shapeWords(status: JobStatus, trans: Translator): string {
  const nodes = nodeCount(status);
  const accelerator = status.accelerator ?? status.spec.accelerator;
  const kind = accelerator === 'auto' ? trans._n('device', 'devices', status.spec.devices) : accelerator;
  return trans._n('%1 node × %2 %3', '%1 nodes × %2 %3', nodes, status.spec.devices, kind);
}

/** `on gpu-a, gpu-b`; null before the job is placed. */
export function hostWords(status: JobStatus, trans: Translator): string | null {
  const hosts = [...new Set(currentTasks(status).map(task => task.host))];
  if (!hosts.length) {
    return null;
  }
  return hosts.length <= HOSTS_NAMED ? trans.__('on %1', hosts.join(', ')) : trans.__('on %1 hosts', hosts.length);
}

const HOSTS_NAMED = 2;

/** Past these a rank that starts warm has waited for its worker's first import of torch: what else comes before its launch is quick. */
const IMPORT_SECONDS = 1;
/** A start that takes no longer is not explained. */
const QUICK_SECONDS = 2;

/** `started in 0.09 s, warm`: from the placement until the last rank's entry ran, or as long as that is unknown until all ran. */
export function startWords(status: JobStatus, trans: Translator): string | null {
  const tasks = currentTasks(status).filter(task => task.placed_at !== null);
  const placed = Math.min(...tasks.map(task => task.placed_at ?? Infinity));
  const entries = tasks.flatMap(task =>
    task.ranks.flatMap(rank =>
      rank.marks['entered'] === undefined ? [] : [(task.placed_at ?? 0) + rank.marks['entered']],
    ),
  );
  const started = entries.length ? Math.max(...entries) : status.started_at;
  if (!Number.isFinite(placed) || started === null || started < placed) {
    return null;
  }
  const time = took(started - placed);
  const warmth = warmthOf(status);
  switch (warmth) {
    case 'warm':
      return hasImported(status)
        ? trans.__('started in %1, PyTorch imported first', time)
        : trans.__('started in %1, warm', time);
    case 'cold':
      return trans.__('started in %1, cold', time);
    default:
      return trans.__('started in %1', time);
  }
}

/** Whether the ranks began with torch imported, or in a parked interpreter; null where that was not asked, or is mixed. */
export function warmthOf(status: JobStatus): 'warm' | 'cold' | null {
  const ranks = outcomesOf(status);
  const isWarm = ranks.map(rank => rank.launcher === 'warm' || rank.start === 'warm');
  if (!ranks.length || (isWarm.includes(true) && isWarm.includes(false))) {
    return null;
  }
  if (isWarm[0]) {
    return 'warm';
  }
  return ranks.some(rank => rank.cold_reason !== null || rank.start === 'cold') ? 'cold' : null;
}

/** Whether a rank that was to start with torch imported was held up until it was. */
function hasImported(status: JobStatus): boolean {
  return outcomesOf(status).some(
    ({ marks }) => (marks['launched'] ?? 0) - (marks['equipped'] ?? marks['fetched'] ?? 0) > IMPORT_SECONDS,
  );
}

/** What a start that is not quick is at, as far as it follows from who starts the ranks; null where there is nothing to say. */
export function startingWords(status: JobStatus, now: number, trans: Translator): string | null {
  const { spec } = status;
  const placed = Math.max(...currentTasks(status).map(task => task.placed_at ?? -Infinity));
  if (spec.requirements !== null && now - placed >= QUICK_SECONDS) {
    return trans.__(
      'The first job with these requirements waits until they are installed; those after it find them there.',
    );
  }
  if (spec.kind !== 'distributed' || spec.launcher === 'direct' || !(now - placed >= QUICK_SECONDS)) {
    return null;
  }
  // As the worker chooses: on other devices than CPUs `auto` is torchrun.
  const isWarm = spec.launcher === 'warm' || (spec.launcher === 'auto' && status.accelerator === 'cpu');
  return isWarm
    ? trans.__('The first job on a worker waits until PyTorch is imported; those after it start at once.')
    : trans.__('torchrun imports PyTorch before it starts the ranks.');
}

/** How long ranks that were interrupted have left. `left`: seconds, where it is known when they were. */
export function stoppingWords(status: JobStatus, left: number | null, trans: Translator): string | null {
  if (!currentTasks(status).length) {
    return null;
  }
  if (left === null) {
    return trans.__('Its ranks were interrupted, and are killed within %1.', age(status.spec.grace_seconds));
  }
  return left > 0
    ? trans.__('Its ranks were interrupted, and are killed in at most %1.', age(Math.ceil(left)))
    : trans.__('Its ranks are killed.');
}

/** `epoch 2/3`, or `812 of 1 250` where the job says no text. */
export function progressWords(status: JobStatus, trans: Translator): string | null {
  const progress = status.progress;
  if (progress === null) {
    return null;
  }
  const done = value(progress.done);
  const counted = progress.total === null ? done : trans.__('%1 of %2', done, value(progress.total));
  return progress.text ? `${progress.text} · ${counted}` : counted;
}

/** How far, from 0 to 1; null where the job says no total. */
export function progressShare(status: JobStatus): number | null {
  const progress = status.progress;
  if (progress === null || progress.total === null || progress.total <= 0) {
    return null;
  }
  return Math.min(1, Math.max(0, progress.done / progress.total));
}

function currentTasks(status: JobStatus): JobStatus['tasks'] {
  return status.tasks.filter(task => task.attempt === status.attempt);
}
