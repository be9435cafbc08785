/**
 * A job as views see it, by way of a widget's kernel. The kernel pushes the record, the log of all ranks and the metrics by
 * itself, since one that runs a cell hears nothing; what a view asks for beyond that comes when the kernel is free.
 */
import type {
  Connection,
  ConnectionState,
  JobActions,
  JobSource,
  LogOptions,
  Subscription,
  Translator,
} from '../views/source';
import type { JobSource as SourceFiles, JobStatus, LogPage, MetricPage, StreamError } from '../protocol';
import { Asking } from '../stream/asking';
import { Subscriptions } from '../stream/subscriptions';
import { isKernelMessage } from './comm';
import type { WidgetModel, WidgetRequest } from './comm';
import { plainTranslator } from './plain_translator';

/** What the kernel refused, or never answered. */
export class WidgetError extends Error {
  constructor(readonly details: StreamError) {
    super(details.message);
    this.name = 'WidgetError';
  }
}

/** Of this page: its widgets share it, and another page on the same kernel begins elsewhere. */
let nextId = 1 + Math.floor(Math.random() * 2 ** 40);
const IDS_A_VIEW = 10_000;

export class CommJobSource implements JobSource {
  constructor(private readonly model: WidgetModel) {
    this.jobId = String(model.get('job_id'));
    this.subscriptions = new Subscriptions(() => this.catchUp(), nextId);
    this.nextRequest = nextId;
    nextId += IDS_A_VIEW;
    model.on('msg:custom', this.onMessage);
    this.actions = {
      cancel: async force => void (await this.request('cancel', { force })),
      startLocalWorkers: async count => void (await this.request('start_local_workers', { count })),
      joinCommand: async () => ((await this.request('join_command', {})) as { command: string }).command,
    };
    Object.defineProperty(this.actions, 'whyNoCancel', { enumerable: true, get: () => this.whyNoCancel });
  }

  /** Also for what came before this was made. */
  readonly onMessage = (message: unknown): void => {
    if (!isKernelMessage(message)) {
      return;
    }
    switch (message.type) {
      case 'frame':
        if (message.frame.type !== 'hello' && (message.frame.id ?? 0) < 0) {
          this.offer(message.frame, message.after);
        } else {
          this.subscriptions.take(message.frame);
        }
        return;
      case 'blocked':
        this.isBlocked = message.value;
        this.tell();
        return;
      case 'reply': {
        const waiting = this.waiting.get(message.id);
        this.waiting.delete(message.id);
        if ('error' in message) {
          waiting?.reject(new WidgetError(message.error));
        } else {
          waiting?.resolve(message.answer);
        }
        return;
      }
      case 'lost':
        this.lose();
    }
  };

  job(on: (status: JobStatus) => void, onFailed: (error: StreamError) => void): Subscription {
    return this.follow(() =>
      this.subscriptions.add(
        { kind: 'job', job_id: this.jobId, after_revision: null, shows: true },
        { onJob: on, onFailed },
      ),
    );
  }

  logs(options: LogOptions, on: (page: LogPage) => void): Subscription {
    const { rank, after = 0, tailBytes = null } = options;
    return this.follow(() =>
      this.subscriptions.add(
        { kind: 'logs', job_id: this.jobId, rank, after, tail_bytes: after === 0 ? tailBytes : null },
        { onLogs: on },
      ),
    );
  }

  metrics(on: (page: MetricPage) => void): Subscription {
    return this.follow(() =>
      this.subscriptions.add({ kind: 'metrics', job_id: this.jobId, after: 0 }, { onMetrics: on }),
    );
  }

  async earlierLogs(options: { rank: number | null; before: number; limitBytes: number }): Promise<LogPage> {
    const { rank, before, limitBytes } = options;
    return (await this.request('earlier_logs', { rank, before, limit_bytes: limitBytes })) as LogPage;
  }

  async readSource(): Promise<SourceFiles> {
    return (await this.request('source', {})) as SourceFiles;
  }

  dispose(): void {
    this.isDisposed = true;
    this.model.off('msg:custom', this.onMessage);
    this.giveUpWaiting();
  }

  /** What the kernel pushed before a view followed it is given to the view then. */
  private follow(add: () => Subscription): Subscription {
    const subscription = add();
    queueMicrotask(() => {
      const pushed = this.pushed;
      this.pushed = [];
      pushed.forEach(({ frame, after }) => this.offer(frame, after));
    });
    return subscription;
  }

  /** Of records the last one is kept; of logs and metrics what no view has taken, lest a long job's whole output stays. */
  private offer(frame: PushedFrame['frame'], after: number | null): void {
    const isTaken = this.subscriptions.offer(frame, after);
    if (frame.type === 'job') {
      this.pushed = this.pushed.filter(pushed => pushed.frame.type !== 'job');
    }
    if (frame.type === 'job' || !isTaken) {
      this.pushed.push({ frame, after });
      this.pushed.splice(0, this.pushed.length - MOST_PUSHED);
    }
  }

  private catchUp(): void {
    if (this.isAsking || this.isDisposed || this.state === 'offline') {
      return;
    }
    this.isAsking = true;
    queueMicrotask(() => {
      this.isAsking = false;
      for (const request of this.isDisposed ? [] : this.asking.catchUp(this.subscriptions)) {
        this.model.send(request);
      }
    });
  }

  private request(call: WidgetRequest['call'], values: Record<string, unknown>): Promise<unknown> {
    if (this.state === 'offline' || this.isDisposed) {
      return Promise.reject(lost(this.trans));
    }
    const id = this.nextRequest++;
    return new Promise((resolve, reject) => {
      this.waiting.set(id, { resolve, reject });
      this.model.send({ type: 'request', id, call, arguments: values });
    });
  }

  private get whyNoCancel(): string | undefined {
    if (this.state === 'offline') {
      return this.trans.__('The kernel is gone: stop the job with `gpulayer cancel`, or in another notebook.');
    }
    return this.isBlocked ? this.trans.__('Interrupt the cell to stop the job.') : undefined;
  }

  private lose(): void {
    this.state = 'offline';
    this.giveUpWaiting();
    this.tell();
  }

  private giveUpWaiting(): void {
    for (const { reject } of this.waiting.values()) {
      reject(lost(this.trans));
    }
    this.waiting.clear();
  }

  private tell(): void {
    for (const on of [...this.listeners]) {
      on();
    }
  }

  readonly jobId: string;
  readonly actions: JobActions;
  readonly trans: Translator = plainTranslator;
  readonly connection: Connection = connectionOf(this);
  /** Of `connection`. */
  state: ConnectionState = 'connected';
  readonly listeners = new Set<() => void>();
  private readonly subscriptions: Subscriptions;
  private readonly asking = new Asking();
  private readonly waiting = new Map<number, { resolve(answer: unknown): void; reject(error: Error): void }>();
  private pushed: PushedFrame[] = [];
  private nextRequest: number;
  private isBlocked = false;
  private isAsking = false;
  private isDisposed = false;
}

const MOST_PUSHED = 200;

interface PushedFrame {
  frame: Parameters<Subscriptions['offer']>[0];
  after: number | null;
}

function connectionOf(source: { readonly state: ConnectionState; readonly listeners: Set<() => void> }): Connection {
  return {
    get state() {
      return source.state;
    },
    onChange: on => {
      const call = (): void => on();
      source.listeners.add(call);
      return { dispose: () => void source.listeners.delete(call) };
    },
  };
}

function lost(trans: Translator): WidgetError {
  const message = trans.__('The kernel of this widget is gone.');
  return new WidgetError({ code: 'lost', status: 0, message, asked: null, found: null, fix: null });
}
