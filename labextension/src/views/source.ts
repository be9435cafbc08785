/**
 * Where a view's data come from: the server's stream (`../stream.ts`) or a widget's kernel (`../widget.ts`). Views know
 * neither; they take what this names, and read and write nothing else.
 */
import type { JobSource as SourceFiles, JobStatus, LogPage, MetricPage, StreamError } from '../protocol';

export interface Subscription {
  dispose(): void;
}

export interface LogOptions {
  /** One rank's lines, or with null those of all ranks. */
  rank: number | null;
  /** The cursor to go on from; 0 or none: from the beginning. */
  after?: number;
  /** With no `after`: begin so that about the last that many bytes come. */
  tailBytes?: number;
}

export type ConnectionState = 'connected' | 'reconnecting' | 'offline';

export interface Connection {
  readonly state: ConnectionState;
  onChange(on: () => void): Subscription;
}

/** What a person may do with the job from here. What is missing cannot be done here, and is not offered. */
export interface JobActions {
  cancel(force: boolean): Promise<void>;
  /** Why `cancel` can do nothing here, for people; its button says so instead. */
  readonly whyNoCancel?: string;
  startLocalWorkers?(count: number): Promise<void>;
  /** The command with which another machine joins. */
  joinCommand?(): Promise<string>;
  /** Where the whole log can be downloaded; of one rank or of all. */
  logUrl?(rank: number | null, form: 'plain' | 'raw'): string;
  openInPanel?(): void;
}

/** As JupyterLab's translation bundle has it; where there is none, texts stay as they are. */
export interface Translator {
  __(text: string, ...args: (string | number)[]): string;
  _n(singular: string, plural: string, n: number, ...args: (string | number)[]): string;
}

export interface JobSource {
  readonly jobId: string;
  readonly connection: Connection;
  readonly actions: JobActions;
  readonly trans: Translator;
  /** UTC seconds by the control plane's clock, as far as it is known: what its times are compared with. None: the browser's. */
  now?(): number;
  /** The job's record as it is, and then after each change. */
  job(on: (status: JobStatus) => void, onFailed: (error: StreamError) => void): Subscription;
  /** Pages of output, each line once, through reconnects. */
  logs(options: LogOptions, on: (page: LogPage) => void): Subscription;
  metrics(on: (page: MetricPage) => void): Subscription;
  /** The page that ends before a sequence. */
  earlierLogs(options: { rank: number | null; before: number; limitBytes: number }): Promise<LogPage>;
  readSource(): Promise<SourceFiles>;
}
