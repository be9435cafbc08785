/** Jobs as the control plane tells of them: each state that a person sees, with the fields that such a job really has. */
import type {
  DistributedJob,
  Frame,
  JobStatus,
  MetricPage,
  MetricValue,
  RankOutcome,
  TaskStatus,
} from '../../src/protocol';
import { jobStatus } from './records';

const TORCH = '/venv/lib/python3.11/site-packages/torch';
const SOURCE = '/var/tmp/gpulayer/workspaces/w1/j0123456789ab.0.1/source';

export function frame(file: string, line: number, name: string, text: string | null = null): Frame {
  return { file, line, function: name, text };
}

export function outcome(rank: number, values: Partial<RankOutcome> = {}): RankOutcome {
  return {
    rank,
    local_rank: rank,
    pid: 4000 + rank,
    exit_code: 0,
    signal: null,
    returned: true,
    collateral: false,
    error: null,
    launcher: 'warm',
    start: null,
    cold_reason: null,
    stacks: [],
    marks: {
      fetched: 0.003,
      launched: 0.009,
      entered: 0.018,
      imported: 0.02,
      met: 0.049,
      first_step: 0.089,
      last_step: 4.289,
      returned: 4.29,
      ended: 4.294,
    },
    ...values,
  };
}

export function task(node: number, values: Partial<TaskStatus> = {}): TaskStatus {
  const name = `gpu-${'abcdefghij'[node] ?? node}`;
  return {
    node,
    state: 'running',
    attempt: 1,
    worker_id: `w${node}`,
    worker: name,
    host: name,
    placed_at: 1000.003,
    devices: ['cuda:0', 'cuda:1'],
    ranks: [],
    outputs: [],
    environment: null,
    ...values,
  };
}

export function shape(nodes: number, devices: number): DistributedJob {
  return { ...(jobStatus().spec as DistributedJob), nodes, devices, accelerator: 'cuda' };
}

export const queued = (): JobStatus =>
  jobStatus({
    name: 'lr-3e-4',
    spec: shape(1, 8),
    state: 'queued',
    accelerator: 'cuda',
    started_at: null,
    waiting_for: 'needs 8 × cuda; free: 3 on gpu-a, 5 on gpu-b',
    waiting: { reason: 'busy', local_workers: 0, cpu_devices: null },
  });

export const waitingForWorkers = (): JobStatus =>
  jobStatus({
    name: 'prepare',
    spec: { ...shape(2, 1), accelerator: 'auto' },
    state: 'queued',
    accelerator: null,
    started_at: null,
    waiting_for: 'no worker yet: start one with `gpulayer worker start`',
    waiting: { reason: 'no_worker', local_workers: 2, cpu_devices: null },
  });

export const running = (): JobStatus =>
  jobStatus({
    spec: shape(2, 2),
    accelerator: 'cuda',
    started_at: 1000.09,
    tasks: [task(0), task(1)],
    progress: { done: 812, total: 1250, text: 'epoch 2/3 · loss 0.131', time: 1040 },
  });

function waitsInAllReduce(line: number): RankOutcome['stacks'] {
  const frames = [
    frame(`${SOURCE}/main.py`, 41, '<module>', 'trainer.fit(model, train_loader, val_loader)'),
    frame(`${SOURCE}/main.py`, line, 'train_step', 'loss.backward()'),
    frame(`${TORCH}/_tensor.py`, 581, 'backward', 'torch.autograd.backward('),
    frame(`${TORCH}/distributed/distributed_c10d.py`, 2501, 'all_reduce', 'work.wait()'),
  ];
  return [{ is_main: true, frames }];
}

const TRACEBACK = `Traceback (most recent call last):
  File "${SOURCE}/main.py", line 41, in <module>
    trainer.fit(model, train_loader, val_loader)
  File "${SOURCE}/main.py", line 14, in train_step
    loss = criterion(model(x), y[:32])
ValueError: shapes (64, 10) and (32, 10) differ`;

/** Rank 1 of four raised; the others waited for it and were stopped. */
export const failed = (): JobStatus => {
  const error = {
    type: 'ValueError',
    message: 'shapes (64, 10) and (32, 10) differ',
    traceback: TRACEBACK,
    frames: [
      frame(`${SOURCE}/main.py`, 41, '<module>', 'trainer.fit(model, train_loader, val_loader)'),
      frame(`${SOURCE}/main.py`, 14, 'train_step', 'loss = criterion(model(x), y[:32])'),
    ],
  };
  const stopped = (rank: number): RankOutcome =>
    outcome(rank, { exit_code: null, signal: 15, returned: false, collateral: true, stacks: waitsInAllReduce(16) });
  return jobStatus({
    name: 'step',
    spec: shape(2, 2),
    state: 'failed',
    revision: 9,
    accelerator: 'cuda',
    started_at: 1000.09,
    ended_at: 1012.4,
    tasks: [
      task(0, { state: 'failed', ranks: [stopped(0), outcome(1, { exit_code: 1, returned: false, error })] }),
      task(1, { state: 'failed', ranks: [stopped(2), stopped(3)] }),
    ],
    failure: {
      reason: 'rank',
      message: 'Rank 1 raised ValueError: shapes (64, 10) and (32, 10) differ',
      node: 0,
      worker: 'gpu-a',
      rank: 1,
      device: 'cuda:1',
      exit_code: 1,
      signal: null,
      error,
      last_lines: ['ValueError: shapes (64, 10) and (32, 10) differ'],
      lasting: false,
    },
  });
};

/** Rank 1 was killed for want of memory, and said nothing. */
export const killed = (): JobStatus => {
  const status = failed();
  const message =
    "Rank 1 was ended by SIGKILL. The kernel's out-of-memory killer did it: the memory limit of the worker's cgroup was reached. It held 79.12 GiB at its peak.";
  const failure = {
    ...status.failure!,
    message,
    exit_code: null,
    signal: 9,
    error: null,
    last_lines: ['epoch 1', 'loading shard 7 of 9'],
    lasting: false,
  };
  return { ...status, failure };
};

/** 64 ranks on eight workers; rank 37 raised, three others failed by it, one was not seen to end. */
export const many = (): JobStatus => {
  const base = failed();
  const stopped = { exit_code: null, signal: 15, returned: false, collateral: true };
  const tasks = Array.from({ length: 8 }, (_, node) =>
    task(node, {
      state: 'failed',
      devices: Array.from({ length: 8 }, (_one, index) => `cuda:${index}`),
      ranks: Array.from({ length: 8 }, (_one, local) => {
        const rank = node * 8 + local;
        if (rank === 37) {
          return outcome(rank, { exit_code: 1, returned: false, error: base.failure!.error });
        }
        return rank === 5 || rank === 50
          ? outcome(rank, { exit_code: 1, returned: false })
          : outcome(rank, { ...stopped, stacks: waitsInAllReduce(rank < 8 ? 20 : 16) });
      }),
    }),
  );
  return {
    ...base,
    name: 'pretrain',
    spec: shape(8, 8),
    tasks,
    failure: { ...base.failure!, rank: 37, node: 4, worker: 'gpu-e', device: 'cuda:5' },
  };
};

export const cancelled = (): JobStatus =>
  jobStatus({
    name: 'lr-1e-2',
    spec: shape(1, 2),
    state: 'cancelled',
    accelerator: 'cuda',
    started_at: 1000.1,
    ended_at: 1062,
    cancel_requested: true,
    tasks: [task(0, { state: 'cancelled' })],
  });

export const succeeded = (): JobStatus =>
  jobStatus({
    name: 'digits',
    spec: shape(1, 2),
    state: 'succeeded',
    accelerator: 'cuda',
    started_at: 1000.02,
    ended_at: 1004.3,
    tasks: [
      task(0, {
        state: 'succeeded',
        ranks: [
          outcome(0),
          outcome(1, {
            marks: {
              fetched: 0.003,
              launched: 0.01,
              entered: 0.025,
              met: 0.06,
              first_step: 0.1,
              last_step: 4.28,
              returned: 4.28,
              ended: 4.29,
            },
          }),
        ],
      }),
    ],
  });

/** A page of points: `values(step, rank)` for each step and rank. */
export function points(
  steps: number,
  ranks: number,
  values: (step: number, rank: number) => Record<string, MetricValue>,
  options: { attempt?: number; from?: number; isTimed?: boolean } = {},
): MetricPage {
  const { attempt = 1, from = 0, isTimed = false } = options;
  const batches = [];
  let [sequence, all] = [0, 0];
  for (let begin = from; begin < from + steps; begin += 500) {
    const made = [];
    for (let step = begin; step < Math.min(begin + 500, from + steps); step += 1) {
      for (let rank = 0; rank < ranks; rank += 1) {
        made.push([rank, isTimed ? null : step, 1000 + step * 0.1, values(step, rank)] as [
          number,
          number | null,
          number,
          Record<string, MetricValue>,
        ]);
      }
    }
    sequence += 1;
    all += made.length;
    batches.push({ attempt, node: 0, number: sequence, points: made, lost: 0, sequence });
  }
  return { batches, next: sequence, complete: false, received: all, kept: all, lost: 0 };
}
