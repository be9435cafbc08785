/** Messages of the control plane, as short as a test wants them. */
import type { JobStatus, JobSummary, LogChunk, LogPage, MetricPage } from '../../src/protocol';

export const JOB_ID = 'j0123456789ab';

export function jobStatus(values: Partial<JobStatus> = {}): JobStatus {
  return {
    job_id: JOB_ID,
    name: 'train',
    owner: 'ada',
    spec: {
      kind: 'distributed',
      name: 'train',
      nodes: 1,
      devices: 2,
      accelerator: 'cpu',
      env: {},
      inputs: {},
      requires: [],
      timeout_seconds: null,
      grace_seconds: 10,
      retries: 0,
      source: null,
      cells: [],
      requirements: null,
      script: 'main.py',
      args: [],
      launcher: 'auto',
    },
    state: 'running',
    revision: 3,
    attempt: 1,
    accelerator: 'cpu',
    created_at: 1000,
    started_at: 1001,
    ended_at: null,
    waiting_for: null,
    waiting: null,
    cancel_requested: false,
    failure: null,
    progress: null,
    tasks: [],
    ...values,
  };
}

export function jobSummary(values: Partial<JobSummary> = {}): JobSummary {
  return {
    job_id: JOB_ID,
    name: 'train',
    owner: 'ada',
    state: 'running',
    revision: 3,
    nodes: 1,
    devices: 2,
    accelerator: 'cpu',
    created_at: 1000,
    started_at: 1001,
    ended_at: null,
    waiting_for: null,
    cancel_requested: false,
    failure: null,
    progress: null,
    ...values,
  };
}

export function logChunk(sequence: number, values: Partial<LogChunk> = {}): LogChunk {
  return {
    attempt: 1,
    node: 0,
    rank: 0,
    stream: 'stdout',
    offset: 0,
    first_line: 0,
    time: 1002,
    data: btoa(`line ${sequence}\n`),
    sequence,
    ...values,
  };
}

export function logPage(sequences: number[], complete = false, next = sequences.at(-1) ?? 0): LogPage {
  return { chunks: sequences.map(sequence => logChunk(sequence)), next, complete };
}

export function metricPage(sequences: number[], next = sequences.at(-1) ?? 0): MetricPage {
  const batches = sequences.map(sequence => ({ attempt: 1, node: 0, number: sequence, points: [], lost: 0, sequence }));
  return { batches, next, complete: false, received: sequences.length, kept: sequences.length, lost: 0 };
}
