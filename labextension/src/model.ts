/**
 * A job as views see it, on the tab's stream and the server's routes (`JobSource`). Records are shared: an output, the same
 * output in another view and a panel follow one record between them.
 */
import { URLExt } from '@jupyterlab/coreutils';
import type { ServerConnection } from '@jupyterlab/services';
import type { JobActions, JobSource, LogOptions, Subscription, Translator } from './views/source';
import { API_PREFIX } from './protocol';
import type { JobSource as SourceFiles, JobStatus, JoinToken, LogPage, MetricPage, StreamError } from './protocol';
import { request } from './requests';
import type { Stream } from './stream';
import type { FollowSubscription } from './stream/subscriptions';

const JOB_ID = /^j[0-9a-f]{12}$/;

/** A notebook is hostile input: only what the control plane itself would have made is taken for a job's id. */
export function isJobId(value: unknown): value is string {
  return typeof value === 'string' && JOB_ID.test(value);
}

export interface SourceOptions {
  trans: Translator;
  /** An output that draws the job: it counts among its views. */
  shows?: boolean;
  openInPanel?: () => void;
}

/** A `JobSource`, and whether what uses it draws the job at the moment. */
export interface ShownSource extends JobSource {
  setShows(shows: boolean): void;
}

/** The jobs of one tab. */
export class JobSources {
  constructor(
    private readonly stream: Stream,
    private readonly settings: ServerConnection.ISettings,
  ) {}

  get(jobId: string, options: SourceOptions): ShownSource {
    return new StreamJobSource(this.stream, this.settings, this.records, jobId, options);
  }

  private readonly records = new Records();
}

interface RecordUser {
  shows: boolean;
  onStatus(status: JobStatus): void;
  onFailed(error: StreamError): void;
}

interface SharedRecord {
  users: Set<RecordUser>;
  last: JobStatus | null;
  subscription: FollowSubscription;
}

/** One subscription for each job's record, however many use it. */
class Records {
  follow(stream: Stream, jobId: string, user: RecordUser): FollowSubscription {
    const record = this.byJob.get(jobId) ?? this.begin(stream, jobId, user.shows);
    record.users.add(user);
    record.subscription.setShows(anyShows(record));
    if (record.last !== null) {
      // Not at once: whoever subscribes is still being made.
      queueMicrotask(() => {
        if (record.last !== null && record.users.has(user)) {
          user.onStatus(record.last);
        }
      });
    }
    return {
      dispose: () => {
        if (!record.users.delete(user)) {
          return;
        }
        if (record.users.size > 0) {
          record.subscription.setShows(anyShows(record));
        } else if (this.byJob.get(jobId) === record) {
          this.byJob.delete(jobId);
          record.subscription.dispose();
        }
      },
      setShows: shows => {
        user.shows = shows;
        record.subscription.setShows(anyShows(record));
      },
    };
  }

  private begin(stream: Stream, jobId: string, shows: boolean): SharedRecord {
    const users = new Set<RecordUser>();
    const record: SharedRecord = {
      users,
      last: null,
      subscription: stream.follow(
        { kind: 'job', job_id: jobId, after_revision: null, shows },
        {
          onJob: status => {
            record.last = status;
            for (const user of [...users]) {
              user.onStatus(status);
            }
          },
          onFailed: error => {
            this.byJob.delete(jobId);
            for (const user of [...users]) {
              user.onFailed(error);
            }
          },
        },
      ),
    };
    this.byJob.set(jobId, record);
    return record;
  }

  private readonly byJob = new Map<string, SharedRecord>();
}

function anyShows(record: SharedRecord): boolean {
  return [...record.users].some(user => user.shows);
}

class StreamJobSource implements ShownSource {
  constructor(
    private readonly stream: Stream,
    private readonly settings: ServerConnection.ISettings,
    private readonly records: Records,
    readonly jobId: string,
    options: SourceOptions,
  ) {
    this.trans = options.trans;
    this.connection = stream;
    this.shows = options.shows ?? false;
    this.actions = {
      cancel: force => this.cancel(force),
      startLocalWorkers: count => this.startLocalWorkers(count),
      joinCommand: () => this.joinCommand(),
      logUrl: (rank, form) => this.logUrl(rank, form),
      ...(options.openInPanel === undefined ? {} : { openInPanel: options.openInPanel }),
    };
  }

  get now(): () => number {
    return this.stream.now;
  }

  setShows(shows: boolean): void {
    this.shows = shows;
    for (const subscription of this.recordUses) {
      subscription.setShows(shows);
    }
  }

  job(on: (status: JobStatus) => void, onFailed: (error: StreamError) => void): Subscription {
    const use = this.records.follow(this.stream, this.jobId, {
      shows: this.shows,
      onStatus: on,
      onFailed,
    });
    this.recordUses.add(use);
    return {
      dispose: () => {
        this.recordUses.delete(use);
        use.dispose();
      },
    };
  }

  logs(options: LogOptions, on: (page: LogPage) => void): Subscription {
    const { rank, after = 0, tailBytes = null } = options;
    return this.stream.follow(
      { kind: 'logs', job_id: this.jobId, rank, after, tail_bytes: after === 0 ? tailBytes : null },
      { onLogs: on },
    );
  }

  metrics(on: (page: MetricPage) => void): Subscription {
    return this.stream.follow({ kind: 'metrics', job_id: this.jobId, after: 0 }, { onMetrics: on });
  }

  earlierLogs(options: { rank: number | null; before: number; limitBytes: number }): Promise<LogPage> {
    const query = new URLSearchParams({ before: String(options.before), limit_bytes: String(options.limitBytes) });
    if (options.rank !== null) {
      query.set('rank', String(options.rank));
    }
    return request<LogPage>(this.settings, `${this.path}/logs?${query}`);
  }

  readSource(): Promise<SourceFiles> {
    return request<SourceFiles>(this.settings, `${this.path}/source`);
  }

  private async cancel(force: boolean): Promise<void> {
    await post(this.settings, `${this.path}/cancel`, { force });
  }

  private async startLocalWorkers(count: number): Promise<void> {
    await post(this.settings, 'v1/workers/local', { count, job_id: this.jobId });
  }

  /** The token is good for one worker and one hour; it reaches that machine's process by standard input only. */
  private async joinCommand(): Promise<string> {
    const { token } = await post<JoinToken>(this.settings, 'v1/tokens/join', {});
    const server = new URL(this.settings.baseUrl, window.location.href).href;
    return `echo ${token} | gpulayer worker start --server '${server}' --token-stdin`;
  }

  private logUrl(rank: number | null, form: 'plain' | 'raw'): string {
    const query = new URLSearchParams({ form });
    if (rank !== null) {
      query.set('rank', String(rank));
    }
    return `${URLExt.join(this.settings.baseUrl, API_PREFIX, this.path, 'log.txt')}?${query}`;
  }

  private get path(): string {
    return `v1/jobs/${encodeURIComponent(this.jobId)}`;
  }

  readonly trans: Translator;
  readonly connection: Stream;
  readonly actions: JobActions;
  private readonly recordUses = new Set<FollowSubscription>();
  private shows: boolean;
}

function post<T>(settings: ServerConnection.ISettings, path: string, body: object): Promise<T> {
  return request<T>(settings, path, { method: 'POST', body: JSON.stringify(body) });
}

/** Stops a job that no view shows, as from a list. */
export async function cancelJob(settings: ServerConnection.ISettings, jobId: string, force = false): Promise<void> {
  await post(settings, `v1/jobs/${encodeURIComponent(jobId)}/cancel`, { force });
}
