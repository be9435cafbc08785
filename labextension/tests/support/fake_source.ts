/** A `JobSource` that a test feeds by hand. */
import type {
  JobSource as SourceFiles,
  JobStatus,
  LogChunk,
  LogPage,
  MetricPage,
  StreamError,
} from '../../src/protocol';
import type {
  Connection,
  ConnectionState,
  JobActions,
  JobSource,
  LogOptions,
  Subscription,
  Translator,
} from '../../src/views/source';

type EarlierOptions = Parameters<JobSource['earlierLogs']>[0];

/** Texts as they are written, with their arguments in place. */
export const plainTranslator: Translator = {
  __: (text, ...args) => text.replace(/%(\d)/g, (whole, digit: string) => String(args[Number(digit) - 1] ?? whole)),
  _n: (singular, plural, n, ...args) => plainTranslator.__(n === 1 ? singular : plural, n, ...args),
};

export class FakeConnection implements Connection {
  private readonly listeners = new Set<() => void>();
  state: ConnectionState = 'connected';

  onChange(on: () => void): Subscription {
    return listening(this.listeners, on);
  }

  become(state: ConnectionState): void {
    this.state = state;
    this.listeners.forEach(on => on());
  }
}

export class FakeSource implements JobSource {
  readonly jobId = 'job-1';
  readonly connection = new FakeConnection();
  readonly trans = plainTranslator;
  /** What was asked for, in order. */
  readonly logOptions: LogOptions[] = [];
  readonly earlierAsked: EarlierOptions[] = [];
  readonly cancelled: boolean[] = [];
  /** What `earlierLogs` and `readSource` answer. */
  earlier: (options: EarlierOptions) => Promise<LogPage> = async () => logPage([]);
  files: () => Promise<SourceFiles> = async () => ({ files: [] }) as unknown as SourceFiles;
  actions: JobActions = {
    cancel: async force => {
      this.cancelled.push(force);
    },
    logUrl: (rank, form) => `http://localhost/log.txt?rank=${rank ?? ''}&form=${form}`,
  };

  private readonly jobListeners = new Set<{
    on: (status: JobStatus) => void;
    onFailed: (error: StreamError) => void;
  }>();
  private readonly logListeners = new Set<{ options: LogOptions; on: (page: LogPage) => void }>();
  private readonly metricListeners = new Set<(page: MetricPage) => void>();

  job(on: (status: JobStatus) => void, onFailed: (error: StreamError) => void): Subscription {
    return listening(this.jobListeners, { on, onFailed });
  }

  logs(options: LogOptions, on: (page: LogPage) => void): Subscription {
    this.logOptions.push(options);
    return listening(this.logListeners, { options, on });
  }

  metrics(on: (page: MetricPage) => void): Subscription {
    return listening(this.metricListeners, on);
  }

  earlierLogs(options: EarlierOptions): Promise<LogPage> {
    this.earlierAsked.push(options);
    return this.earlier(options);
  }

  readSource(): Promise<SourceFiles> {
    return this.files();
  }

  /** How many subscriptions are open. */
  get open(): number {
    return this.jobListeners.size + this.logListeners.size + this.metricListeners.size;
  }

  sendJob(status: JobStatus): void {
    this.jobListeners.forEach(({ on }) => on(status));
  }

  fail(error: StreamError): void {
    this.jobListeners.forEach(({ onFailed }) => onFailed(error));
  }

  /** To everybody, or to those who follow a rank only its chunks. */
  sendLogs(page: LogPage): void {
    this.logListeners.forEach(({ options, on }) => {
      const wanted = page.chunks.filter(chunk => options.rank === null || chunk.rank === options.rank);
      on({ ...page, chunks: wanted });
    });
  }

  sendMetrics(page: MetricPage): void {
    this.metricListeners.forEach(on => on(page));
  }
}

export function logPage(chunks: LogChunk[], complete = false): LogPage {
  return { chunks, next: chunks[chunks.length - 1]?.sequence ?? 0, complete };
}

/** Makes the chunks of a job as its ranks print them: offsets, lines and sequences go on by themselves. */
export class Printing {
  private readonly places = new Map<string, { offset: number; line: number }>();

  constructor(private sequence = 0) {}

  chunk(
    text: string | Uint8Array,
    about: Partial<Pick<LogChunk, 'rank' | 'stream' | 'attempt' | 'node'>> = {},
  ): LogChunk {
    const { rank = 0, stream = 'stdout', attempt = 1, node = 0 } = about;
    const data = typeof text === 'string' ? new TextEncoder().encode(text) : text;
    const key = JSON.stringify([attempt, node, rank, stream]);
    const place = this.places.get(key) ?? { offset: 0, line: 0 };
    this.places.set(key, {
      offset: place.offset + data.length,
      line: place.line + data.filter(byte => byte === 10).length,
    });
    this.sequence += 1;
    return {
      attempt,
      node,
      rank,
      stream,
      offset: place.offset,
      first_line: place.line,
      time: this.sequence,
      data: base64(data),
      sequence: this.sequence,
    };
  }
}

export function base64(data: Uint8Array): string {
  let text = '';
  data.forEach(byte => {
    text += String.fromCharCode(byte);
  });
  return btoa(text);
}

function listening<T>(listeners: Set<T>, listener: T): Subscription {
  listeners.add(listener);
  return { dispose: () => listeners.delete(listener) };
}
