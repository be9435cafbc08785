/** A job's ranks as rows: from its shape while it runs, from how each ended after that. Pure. */
import type { JobStatus, RankOutcome, TaskStatus } from '../protocol';
import { outcomeText } from './exit_words';
import { nodeCount, phaseOfStatus } from './job_words';
import type { Translator } from './source';
import { phaseWord, type Phase } from './state_marks';

export interface RankRow {
  rank: number;
  node: number;
  worker: string | null;
  host: string | null;
  device: string | null;
  phase: Phase;
  /** In words: `running`, `exit code 0`, `stopped as another failed: …`. */
  state: string;
  /** Who started it. */
  launcher: string | null;
  /** What it raised, and why it did not start warm. */
  note: string | null;
  /** It failed before all others. */
  first: boolean;
}

/** All ranks in ascending order. */
export function rankRows(status: JobStatus, trans: Translator): RankRow[] {
  const perNode = status.spec.kind === 'distributed' ? status.spec.devices : 1;
  const rows: RankRow[] = [];
  for (let node = 0; node < nodeCount(status); node += 1) {
    const task = status.tasks.find(one => one.node === node) ?? null;
    for (let local = 0; local < perNode; local += 1) {
      const rank = node * perNode + local;
      const outcome = task?.ranks.find(one => one.rank === rank) ?? null;
      rows.push(rowOf(status, task, outcome, { rank, local }, trans));
    }
  }
  return rows;
}

/** Those that stand out, the guilty first: what failed, then what is unlike most. */
export function oddOnes(rows: readonly RankRow[]): RankRow[] {
  const counts = new Map<string, number>();
  for (const row of rows) {
    counts.set(row.state, (counts.get(row.state) ?? 0) + 1);
  }
  const most = [...counts].sort(([, one], [, other]) => other - one)[0]?.[0];
  const weight = (row: RankRow): number => (row.first ? 0 : row.phase === 'failed' ? 1 : 2);
  return rows
    .filter(row => row.first || row.phase === 'failed' || row.state !== most)
    .sort((one, other) => weight(one) - weight(other) || one.rank - other.rank);
}

/** A rank as the choice of logs shows it. */
export interface RankMark {
  rank: number;
  phase: Phase;
  /** It failed before all others. */
  first: boolean;
}

/** All ranks in ascending order. */
export function rankMarks(status: JobStatus): RankMark[] {
  return rankRows(status, PLAIN).map(({ rank, phase, first }) => ({ rank, phase, first }));
}

/** Marks have no words. */
const PLAIN: Translator = { __: text => text, _n: text => text };

function rowOf(
  status: JobStatus,
  task: TaskStatus | null,
  outcome: RankOutcome | null,
  place: { rank: number; local: number },
  trans: Translator,
): RankRow {
  const first = status.state === 'failed' && status.failure?.rank === place.rank;
  const devices = task?.devices ?? [];
  const device = status.spec.kind === 'distributed' ? devices[place.local] : devices.join(', ');
  const phase = outcome === null ? phaseOfTask(status, task) : phaseOfOutcome(outcome, status);
  const how = outcome === null ? taskWords(task, phase, trans) : outcomeText(outcome, trans);
  return {
    rank: place.rank,
    node: task?.node ?? Math.floor(place.rank / Math.max(1, status.spec.devices)),
    worker: task?.worker ?? null,
    host: task?.host ?? null,
    device: device || null,
    phase,
    state: first ? trans.__('failed first: %1', how) : how,
    launcher: outcome === null ? null : launcherWords(outcome, trans),
    note: outcome === null ? null : noteOf(outcome, trans),
    first,
  };
}

function phaseOfOutcome(outcome: RankOutcome, status: JobStatus): Phase {
  if (outcome.collateral) {
    return 'cancelled';
  }
  if (outcome.returned || outcome.exit_code === 0) {
    return 'succeeded';
  }
  return status.cancel_requested && status.state !== 'failed' ? 'cancelled' : 'failed';
}

function phaseOfTask(status: JobStatus, task: TaskStatus | null): Phase {
  switch (task?.state) {
    case 'placed':
    case 'acknowledged':
      return 'starting';
    case 'running':
      return phaseOfStatus(status) === 'stopping' ? 'stopping' : 'running';
    case 'succeeded':
    case 'failed':
    case 'cancelled':
      return task.state;
    case 'lost':
      return 'failed';
    case undefined:
      return status.state === 'queued' || status.state === 'running' ? 'queued' : 'cancelled';
  }
}

function taskWords(task: TaskStatus | null, phase: Phase, trans: Translator): string {
  if (task?.state === 'lost') {
    return trans.__('lost with its worker');
  }
  return task === null && phase === 'cancelled' ? trans.__('never started') : phaseWord(phase, trans);
}

function launcherWords(outcome: RankOutcome, trans: Translator): string {
  if (outcome.launcher !== null) {
    return outcome.launcher;
  }
  return outcome.start === null ? trans.__('command') : trans.__('command, %1', outcome.start);
}

function noteOf(outcome: RankOutcome, trans: Translator): string | null {
  const notes: string[] = [];
  if (outcome.error !== null) {
    const message = outcome.error.message.trim().split('\n')[0];
    notes.push(message ? `${outcome.error.type}: ${message}` : outcome.error.type);
  }
  if (outcome.cold_reason !== null) {
    notes.push(trans.__('not started warm: %1', outcome.cold_reason));
  }
  return notes.length ? notes.join('; ') : null;
}
