// Made from gpulayer/protocol by docs/generated.py: change it there.

export const VERSION = '0.1.0';

export const PROTOCOL_VERSION = 1;

/** Below the server's base URL. */
export const API_PREFIX = 'gpulayer';

export const STREAM_PATH = 'v1/stream';

/** Of one tab. */
export const MOST_SUBSCRIPTIONS = 200;

/** The states that a job stays in. */
export const TERMINAL_STATES: readonly JobState[] = ['succeeded', 'failed', 'cancelled'];

/** The steps of a rank, in their order. */
export const MARKS: readonly string[] = ['fetched', 'equipped', 'launched', 'entered', 'imported', 'met', 'first_step', 'last_step', 'returned', 'ended'];

/** The body of every answer that is no success. */
export interface ErrorAnswer {
  error: StreamError;
}

export type AnyJob = CommandJob | DistributedJob;

/** Where one try at a task stands. */
export type AttemptState = 'placed' | 'acknowledged' | 'running' | 'succeeded' | 'failed' | 'cancelled' | 'lost';

export interface CancelJob {
  job_id: string;
  /** no grace: killed at once */
  force?: boolean;
}

/** One process on one worker: `CommandJob(["python", "train.py"])`. */
export interface CommandJob {
  kind: 'command';
  /** the command; `python` as its first word is the worker's own interpreter. */
  argv: string[];
  /** shown in lists; letters, digits, `.`, `_` and `-`. */
  name: string | null;
  /** whole devices per node. */
  devices: number;
  /** `auto` is fixed at submit to the best kind that this home has seen and that could hold the job. */
  accelerator: string;
  /** variables set for every rank. */
  env: Record<string, string>;
  /**
   * name → local path of a file or folder; in the job it lies at `$GPULAYER_INPUTS_DIR/NAME`, and a relative path is
   * also linked at that path in the job's working directory.
   */
  inputs: Record<string, string>;
  /** frameworks and capabilities that a worker must report (`torch`, `torch.cuda`). */
  requires: string[];
  /** counted from the first rank's start; None means none. */
  timeout_seconds: number | null;
  /** per rank, from the first signal of a cancel or timeout to SIGKILL (ADR-0024). */
  grace_seconds: number;
  /** how often a failed or lost attempt is tried again. */
  retries: number;
  /**
   * local folder whose source travels with the job; None means that the job needs none (a CommandJob), or the script's
   * own folder (a DistributedJob).
   */
  source: string | null;
  /**
   * of a notebook's program, the execution counts of its cells in the order of the manifest, so that its lines can be
   * told as lines of cells; they change from run to run, and so are no part of the source.
   */
  cells: number[];
  /**
   * local path of a requirements file; the worker builds an environment of it, on top of its own packages, and keeps
   * it.
   */
  requirements: string | null;
}

/** A token with which one worker may register, once. */
export interface CreateJoinToken {
  valid_seconds?: number;
}

/** One accelerator of a worker; `id` is unique on its host ("cuda:GPU-<uuid>", "cpu:0"). */
export interface Device {
  id: string;
  accelerator: string;
  index: number;
  name: string;
  memory_bytes: number | null;
  simulated: boolean;
}

/** `nodes` × `devices` ranks of one Python script, as torchrun would start them. */
export interface DistributedJob {
  kind: 'distributed';
  /** shown in lists; letters, digits, `.`, `_` and `-`. */
  name: string | null;
  /** whole devices per node. */
  devices: number;
  /** `auto` is fixed at submit to the best kind that this home has seen and that could hold the job. */
  accelerator: string;
  /** variables set for every rank. */
  env: Record<string, string>;
  /**
   * name → local path of a file or folder; in the job it lies at `$GPULAYER_INPUTS_DIR/NAME`, and a relative path is
   * also linked at that path in the job's working directory.
   */
  inputs: Record<string, string>;
  /** frameworks and capabilities that a worker must report (`torch`, `torch.cuda`). */
  requires: string[];
  /** counted from the first rank's start; None means none. */
  timeout_seconds: number | null;
  /** per rank, from the first signal of a cancel or timeout to SIGKILL (ADR-0024). */
  grace_seconds: number;
  /** how often a failed or lost attempt is tried again. */
  retries: number;
  /**
   * local folder whose source travels with the job; None means that the job needs none (a CommandJob), or the script's
   * own folder (a DistributedJob).
   */
  source: string | null;
  /**
   * of a notebook's program, the execution counts of its cells in the order of the manifest, so that its lines can be
   * told as lines of cells; they change from run to run, and so are no part of the source.
   */
  cells: number[];
  /**
   * local path of a requirements file; the worker builds an environment of it, on top of its own packages, and keeps
   * it.
   */
  requirements: string | null;
  /** path of the script, relative to `source`. */
  script: string;
  /** its arguments. */
  args: string[];
  /** how many workers take part, all at once. */
  nodes: number;
  /**
   * who starts the ranks on a node: `torchrun`; `direct`, the worker's keeper, in the environment that a rank finds
   * under torchrun; `warm`, a process that has imported torch already (where that can't be, direct, and the record says
   * why); `auto`, warm, but torchrun on a GPU (ADR-0035).
   */
  launcher: string;
}

/** The subscription is over; `id` is None where what the tab said named none. */
export interface FailedFrame {
  type: 'failed';
  id: number | null;
  error: StreamError;
}

/** Why a job failed: the first rank that did, or what kept the job from running. */
export interface Failure {
  reason: FailureReason;
  message: string;
  node: number | null;
  worker: string | null;
  rank: number | null;
  device: string | null;
  exit_code: number | null;
  signal: number | null;
  error: RankError | null;
  last_lines: string[];
  /** Trying again would end the same way, and is not done. */
  lasting: boolean;
}

export type FailureReason = 'launcher' | 'lost' | 'orphaned' | 'rank' | 'start' | 'timeout';

/** A job's record, now where it is newer than `after_revision`, and whenever it has changed. */
export interface FollowJob {
  kind: 'job';
  job_id: string;
  after_revision?: number | null;
  /** an output view draws the job: it counts (`JobViews`) as long as this is subscribed */
  shows?: boolean;
}

/** The newest jobs, then those that have changed; with `after`, the `next` of an earlier frame, the changes since. */
export interface FollowJobs {
  kind: 'jobs';
  limit?: number;
  after?: number | null;
}

/** A job's output behind `after`; with `tail_bytes` and `after` 0, about the last that many bytes of it. */
export interface FollowLogs {
  kind: 'logs';
  job_id: string;
  rank?: number | null;
  after?: number;
  tail_bytes?: number | null;
}

/** A job's metrics behind `after`. */
export interface FollowMetrics {
  kind: 'metrics';
  job_id: string;
  after?: number;
}

export type Followed = FollowJob | FollowLogs | FollowMetrics | FollowJobs;

/** One line of a Python stack. `text` is that line of the source, without its indent, where it is known. */
export interface Frame {
  file: string;
  line: number;
  function: string;
  text: string | null;
}

export interface GetHealth {
}

/**
 * Held up to `wait` seconds until the job is terminal, or, with `after_revision`, until its record is newer than that.
 */
export interface GetJob {
  job_id: string;
  wait?: number;
  after_revision?: number | null;
}

export interface GetSource {
  job_id: string;
}

export interface Health {
  protocol: number;
  version: string;
  home_id: string;
  workers_alive: number;
  jobs_unfinished: number;
}

/** The first frame of a socket. `instance`: of this start of the server. */
export interface HelloFrame {
  type: 'hello';
  version: string;
  protocol: number;
  instance: string;
  /** UTC seconds by the server's clock, when it was sent */
  time: number;
}

/** Go on with `status.revision`. */
export interface JobFrame {
  type: 'job';
  id: number;
  status: JobStatus;
}

export interface JobList {
  jobs: JobStatus[];
  /** give it as `before` for the page after this one */
  next: string | null;
}

/** The files of a job's bundle, the script that runs first; empty where the job has no source. */
export interface JobSource {
  files: SourceFile[];
  /** the one of `files` that the ranks run */
  script: string | null;
  /** so many more are in the bundle than are named here */
  more_files: number;
}

/** Where a job stands. */
export type JobState = 'queued' | 'running' | 'succeeded' | 'failed' | 'cancelled';

/** Everything about a job but its logs. */
export interface JobStatus {
  job_id: string;
  name: string;
  owner: string;
  spec: AnyJob;
  state: JobState;
  /** grows with every change of this record */
  revision: number;
  attempt: number;
  /** fixed at submit, or at first placement when no worker was known */
  accelerator: string | null;
  created_at: number;
  started_at: number | null;
  ended_at: number | null;
  /** a queued job's reason, in words */
  waiting_for: string | null;
  /** the same for programs */
  waiting: Waiting | null;
  cancel_requested: boolean;
  failure: Failure | null;
  progress: Progress | null;
  tasks: TaskStatus[];
}

/** What a list shows of a job: small whatever its ranks, errors and stacks are. */
export interface JobSummary {
  job_id: string;
  name: string;
  owner: string;
  state: JobState;
  revision: number;
  nodes: number;
  /** of each node */
  devices: number;
  accelerator: string | null;
  created_at: number;
  started_at: number | null;
  ended_at: number | null;
  waiting_for: string | null;
  cancel_requested: boolean;
  /** one line */
  failure: string | null;
  progress: Progress | null;
}

/** How many output views draw the job at this moment, of those that this control plane serves. */
export interface JobViews {
  count: number;
}

/** Newest first. `whole`: these are all of them, forget others; else those that changed. Go on with `next`. */
export interface JobsFrame {
  type: 'jobs';
  id: number;
  jobs: JobSummary[];
  next: number;
  whole: boolean;
}

export interface JoinToken {
  token: string;
  expires_at: number;
}

export interface ListJobs {
  state?: JobState | null;
  limit?: number;
  before?: string | null;
}

export interface ListWorkers {
  include_gone?: boolean;
}

/** A piece of one stream of one rank. `rank` is None for what the launcher itself printed. */
export interface LogChunk {
  attempt: number;
  node: number;
  rank: number | null;
  stream: Stream;
  /** bytes of this stream before this chunk */
  offset: number;
  /** complete lines of this stream before this chunk */
  first_line: number;
  /** stamped by the worker when it was read */
  time: number;
  /** base64 */
  data: string;
  /** assigned by the control plane, per job; the reading cursor */
  sequence: number;
}

export interface LogPage {
  chunks: LogChunk[];
  /** the cursor to go on from */
  next: number;
  /** the job is terminal and nothing lies behind `next` */
  complete: boolean;
}

/** Go on with `page.next`, which may have moved without a chunk; a page that is `complete` is the last one. */
export interface LogsFrame {
  type: 'logs';
  id: number;
  page: LogPage;
}

/** Points of the ranks of one node, in the order in which each said them. */
export interface MetricBatch {
  attempt: number;
  node: number;
  /** counted from 1 by the worker, for each attempt and node: one that comes again is stored once */
  number: number;
  points: MetricPoint[];
  /** points that were dropped before they could be sent, since the batch before */
  lost: number;
  /** assigned by the control plane, per job; the reading cursor */
  sequence: number;
}

/**
 * `received` and `kept` count the points of the whole job so far: where they differ, the job was thinned out (docs:
 * Jobs).
 */
export interface MetricPage {
  batches: MetricBatch[];
  /** the cursor to go on from */
  next: number;
  /** the job is terminal and nothing lies behind `next` */
  complete: boolean;
  received: number;
  kept: number;
  /** points that never reached the control plane, as far as is known */
  lost: number;
}

/** What one call of `gpulayer.log` said: an array of four in JSON, since there are many. */
export type MetricPoint = [rank: number, step: number | null, time: number, values: Record<string, MetricValue>];

export type MetricValue = number | '-inf' | 'inf' | 'nan';

/** Go on with `page.next`; a page that is `complete` is the last one. */
export interface MetricsFrame {
  type: 'metrics';
  id: number;
  page: MetricPage;
}

/** One file of a job's outputs; `path` is relative to `$GPULAYER_OUTPUT_DIR`. */
export interface OutputFile {
  path: string;
  sha256: string;
  size_bytes: number;
}

/** How far a job is, as its rank 0 says. */
export interface Progress {
  done: number;
  total: number | null;
  text: string | null;
  /** UTC seconds by the worker's clock, of when the rank said it */
  time: number;
}

/** The exception that ended a rank's script. `frames`: the script's own, the innermost last. */
export interface RankError {
  type: string;
  message: string;
  traceback: string;
  frames: Frame[];
}

/**
 * How one rank ended, as its agent saw it. `exit_code` is None after a signal; both are None where nobody saw the exit.
 */
export interface RankOutcome {
  rank: number;
  local_rank: number;
  pid: number | null;
  exit_code: number | null;
  signal: number | null;
  /** the script ran to its end; what the interpreter's teardown did after that does not count */
  returned: boolean;
  /** stopped because another rank failed first */
  collateral: boolean;
  error: RankError | null;
  /** Who started it; of a command, `warm` where it began with torch imported, else None. */
  launcher: 'direct' | 'torchrun' | 'warm' | null;
  /** Whether a command began in a parked interpreter; None for the ranks of a launcher. */
  start: 'cold' | 'warm' | null;
  /** Why a Python command did not, or why what may start with torch imported did not. */
  cold_reason: string | null;
  /** What it was doing when it was stopped because another rank failed, or because its time was up. */
  stacks: ThreadStack[];
  /** When it reached which step (`MARKS`), in seconds since its worker took the assignment in. */
  marks: Record<string, number>;
}

/**
 * Chunks with a sequence over `after`, oldest first; held up to `wait` seconds while there are none and more may come.
 * With `tail_bytes` and `after` 0, about the last that many bytes of what is there, in whole chunks. With `before`, the
 * chunks that end before that sequence, as many as `limit_bytes` allows: never held, empty at the beginning.
 */
export interface ReadLogs {
  job_id: string;
  rank?: number | null;
  after?: number;
  limit_bytes?: number;
  wait?: number;
  tail_bytes?: number | null;
  before?: number | null;
}

/**
 * Batches with a sequence over `after`, oldest first; held up to `wait` seconds while there are none and more may come.
 * With `rank` or `name`, points of that rank and values of that name only.
 */
export interface ReadMetrics {
  job_id: string;
  rank?: number | null;
  name?: string | null;
  after?: number;
  wait?: number;
}

/**
 * The multiplexed long poll: held up to `wait` seconds until one of the subscriptions has something; the tab moves its
 * cursors. A poll's `shows` counts until shortly after its answer, so that it lasts from one poll to the next.
 */
export interface ReadStream {
  subscriptions: Record<number, Followed>;
  wait?: number;
}

/** Held up to `wait` seconds until a view draws the job. */
export interface ReadViews {
  job_id: string;
  wait?: number;
}

/** `text` is None of a file that is no UTF-8 text, too large, or beyond what is given in total. */
export interface SourceFile {
  path: string;
  size_bytes: number;
  text: string | null;
}

/**
 * Start workers on the control plane's own machine; answers once they have registered. With `job_id`, such as would let
 * that job run: what is not said here is chosen for it.
 */
export interface StartLocalWorkers {
  count: number;
  /**
   * Their interpreter, and that of their jobs. Empty, as from a browser: the one that local workers of this home last
   * had, of several the one that provides what the job requires; where there was none, the control plane's own.
   */
  python?: string;
  cpu_devices?: number | null;
  simulate_devices?: string | null;
  job_id?: string | null;
}

export type Stream = 'stderr' | 'stdout';

/** An error as the HTTP calls answer it. */
export interface StreamError {
  code: string;
  status: number;
  message: string;
  asked: string | null;
  found: string | null;
  fix: string | null;
}

export type StreamFrame = HelloFrame | JobFrame | LogsFrame | MetricsFrame | JobsFrame | FailedFrame;

export interface StreamFrames {
  frames: StreamFrame[];
}

export type StreamRequest = Subscribe | Unsubscribe;

/** Begin to send what is followed; `id` is the tab's own name for it. An id that is in use is begun anew. */
export interface Subscribe {
  type: 'subscribe';
  id: number;
  to: Followed;
}

/** What a node's ranks find: the interpreter, and those packages that the job's program uses or that it asked for. */
export interface TaskEnvironment {
  python: string;
  implementation: string;
  /** name → version; what is not installed is not in it */
  packages: Record<string, string>;
  /** from where the program was written, in words */
  differences: string[];
  /** of the file that it was built from */
  requirements: string | null;
  /** None: nothing had to be built */
  build_seconds: number | null;
}

/** The newest attempt of one node's share. */
export interface TaskStatus {
  node: number;
  state: AttemptState;
  attempt: number;
  worker_id: string;
  worker: string;
  host: string;
  placed_at: number | null;
  devices: string[];
  ranks: RankOutcome[];
  outputs: OutputFile[];
  /**
   * Of a program whose manifest says what it uses, and of a job that brings requirements; known with the end of the
   * task.
   */
  environment: TaskEnvironment | null;
}

/** What one thread of a rank was doing when the rank was stopped: the innermost frame last. */
export interface ThreadStack {
  is_main: boolean;
  frames: Frame[];
}

/** Send nothing more of it. */
export interface Unsubscribe {
  type: 'unsubscribe';
  id: number;
}

/** Why a job is queued, for programs; `JobStatus.waiting_for` has it in words. */
export interface Waiting {
  reason: WaitingReason;
  /**
   * How many more workers on the control plane's own machine would let it run (`StartLocalWorkers`, with this job's
   * id); 0 where they would not, or where somebody else's worker is alive, so that there is an operator who adds
   * workers.
   */
  local_workers: number;
  /** How many CPU devices each of those is to offer. */
  cpu_devices: number | null;
}

export type WaitingReason =
  | 'apart'
  | 'busy'
  | 'draining'
  | 'no_worker'
  | 'requires'
  | 'starting'
  | 'too_few'
  | 'too_small';

export interface WorkerList {
  workers: WorkerStatus[];
}

export interface WorkerStatus {
  worker_id: string;
  name: string;
  host: string;
  state: 'alive' | 'draining' | 'gone';
  /** started by this control plane on its own machine */
  local: boolean;
  devices: Device[];
  devices_held: Record<string, string>;
  frameworks: Record<string, string>;
  python: string;
  version: string;
  registered_at: number;
  last_seen_at: number;
}
