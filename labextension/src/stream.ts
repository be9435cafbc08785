/**
 * The one stream of a tab: everything that its views follow comes over one WebSocket, or over one long poll where a proxy
 * lets none through. Keeps the link up; cursors live in `stream/subscriptions.ts`.
 */
import type { ServerConnection } from '@jupyterlab/services';
import type { Connection, ConnectionState, Subscription } from './views/source';
import { PROTOCOL_VERSION } from './protocol';
import type { Followed } from './protocol';
import { asError } from './requests';
import { backoffMs, RECONNECT, SELDOM } from './stream/backoff';
import type { Link, LinkEvents } from './stream/link';
import { PollLink } from './stream/poll';
import { SocketLink } from './stream/socket';
import { Subscriptions } from './stream/subscriptions';
import type { FollowSubscription, Listener } from './stream/subscriptions';

/** After so many tries in vain it is called offline; it is tried on all the same. */
const TRIES_UNTIL_OFFLINE = 4;
/** A link that nobody needs is closed after this, so that a rank switch does not open one anew. */
const IDLE_MS = 5_000;
/** A link that breaks sooner counts as a try in vain: a proxy may let each socket in and cut it at once. */
const STEADY_MS = 5_000;
/** A tab out of sight for longer asks for no logs and metrics; what came meanwhile comes when it is seen again. */
const HIDDEN_MS = 30_000;

/** The server has no GPUlayer, does not let this person in, or speaks a version that this page does not understand. */
export type StreamProblem = 'missing' | 'not_allowed' | 'protocol';

export interface StreamOptions {
  settings: ServerConnection.ISettings;
  /** The page; its visibility makes the stream quiet. */
  page?: Document;
  random?: () => number;
}

export class Stream implements Connection {
  constructor(options: StreamOptions) {
    this.settings = options.settings;
    this.random = options.random ?? Math.random;
    this.page = options.page;
    this.page?.addEventListener('visibilitychange', this.onVisibility);
    window.addEventListener('online', this.onOnline);
  }

  get state(): ConnectionState {
    return this.currentState;
  }

  /** Why it is offline although the server answers. */
  get problem(): StreamProblem | null {
    return this.refusal;
  }

  onChange(on: () => void): Subscription {
    const call = (): void => on();
    this.listeners.add(call);
    return { dispose: () => void this.listeners.delete(call) };
  }

  /** UTC seconds by the server's clock, as far as it is known. */
  readonly now = (): number => Date.now() / 1000 + this.clockOffset;

  follow(to: Followed, listener: Listener): FollowSubscription {
    return this.subscriptions.add(to, listener);
  }

  /** Try at once, not at the next turn. */
  retry(): void {
    if (this.link === null && this.subscriptions.size > 0) {
      this.attempts = Math.min(this.attempts, 1);
      this.connect();
    }
  }

  dispose(): void {
    this.isDisposed = true;
    this.page?.removeEventListener('visibilitychange', this.onVisibility);
    window.removeEventListener('online', this.onOnline);
    clearTimeout(this.hiddenTimer);
    this.disconnect();
    this.listeners.clear();
  }

  private onWantedChange(): void {
    if (this.isUpdating) {
      return;
    }
    // Views subscribe to several things in one go: one update for all of them.
    this.isUpdating = true;
    queueMicrotask(() => {
      this.isUpdating = false;
      this.update();
    });
  }

  private update(): void {
    if (this.isDisposed) {
      return;
    }
    if (this.subscriptions.size === 0) {
      this.idleTimer ??= setTimeout(() => this.disconnect(), IDLE_MS);
      this.link?.update(this.subscriptions);
      return;
    }
    clearTimeout(this.idleTimer);
    this.idleTimer = undefined;
    if (this.link !== null) {
      this.link.update(this.subscriptions);
    } else if (this.retryTimer === undefined) {
      this.connect();
    }
  }

  private connect(): void {
    clearTimeout(this.retryTimer);
    this.retryTimer = undefined;
    this.use(events => new SocketLink(this.settings, events), {
      onOpen: () => undefined,
      onLost: wasOpen => {
        if (wasOpen) {
          this.again();
        } else {
          this.poll();
        }
      },
    });
  }

  /** The socket did not open: does the server answer otherwise? */
  private poll(): void {
    this.use(events => new PollLink(this.settings, this.subscriptions, events), {
      onOpen: () => this.socketLater(0),
      onLost: (_wasOpen, status) => {
        clearTimeout(this.socketTimer);
        this.refuse(status);
        this.again();
      },
    });
  }

  private use(
    make: (events: LinkEvents) => Link,
    then: { onOpen: () => void; onLost: (wasOpen: boolean, status: number | null) => void },
  ): void {
    let link: Link | null = null;
    let isOpen = false;
    const isCurrent = (): boolean => !this.isDisposed && (link === null || this.link === link);
    link = make({
      onOpen: hello => {
        if (!isCurrent() || !this.greet(hello)) {
          return;
        }
        if (!isOpen) {
          isOpen = true;
          then.onOpen();
        }
        this.link?.update(this.subscriptions);
      },
      onFrame: frame => {
        if (isCurrent()) {
          this.subscriptions.take(frame);
        }
      },
      onLost: lost => {
        if (isCurrent()) {
          this.link = null;
          then.onLost(lost.wasOpen, lost.status);
        }
      },
    });
    this.link = link;
  }

  /** While polls work, a socket is tried beside them; once it opens, it takes over. */
  private socketLater(attempt: number): void {
    clearTimeout(this.socketTimer);
    this.socketTimer = setTimeout(
      () => {
        const trial: Link = new SocketLink(this.settings, {
          onOpen: hello => {
            this.trial = null;
            this.link?.close();
            this.link = trial;
            if (this.greet(hello)) {
              trial.update(this.subscriptions);
            }
          },
          onFrame: frame => this.subscriptions.take(frame),
          onLost: ({ wasOpen }) => {
            if (wasOpen) {
              this.link = null;
              this.again();
            } else {
              this.trial = null;
              this.socketLater(attempt + 1);
            }
          },
        });
        this.trial = trial;
      },
      backoffMs(attempt, SELDOM, this.random()),
    );
  }

  /** Takes in what the server says of itself; false where the two do not understand each other. */
  private greet(hello: { instance: string | null; protocol: number | null; serverTime: number | null }): boolean {
    if (hello.protocol !== null && Math.abs(hello.protocol - PROTOCOL_VERSION) > 1) {
      const error = asError('protocol', 0, 'The server has another version of GPUlayer than this page.');
      error.found = `protocol ${hello.protocol}, here ${PROTOCOL_VERSION}`;
      error.fix = 'Reload the page.';
      this.disconnect();
      this.refusal = 'protocol';
      this.become('offline');
      this.subscriptions.failAll(error);
      return false;
    }
    if (hello.serverTime !== null && Number.isFinite(hello.serverTime)) {
      this.clockOffset = hello.serverTime - Date.now() / 1000;
    }
    if (hello.instance !== null) {
      if (this.instance !== null && this.instance !== hello.instance) {
        this.subscriptions.forgetRevisions();
      }
      this.instance = hello.instance;
    }
    this.greetedAt = Date.now();
    this.refusal = null;
    this.become('connected');
    return true;
  }

  private refuse(status: number | null): void {
    if (status === 404) {
      this.refusal = 'missing';
    } else {
      this.refusal = status === 401 || status === 403 ? 'not_allowed' : null;
    }
  }

  private again(): void {
    if (this.subscriptions.size === 0) {
      return;
    }
    if (this.greetedAt !== null && Date.now() - this.greetedAt >= STEADY_MS) {
      this.attempts = 0;
    }
    this.greetedAt = null;
    const attempt = this.attempts++;
    this.become(this.refusal !== null || attempt + 1 >= TRIES_UNTIL_OFFLINE ? 'offline' : 'reconnecting');
    clearTimeout(this.retryTimer);
    // A server that says no is asked seldom: it fills its log with that.
    const pace = this.refusal === null ? RECONNECT : SELDOM;
    this.retryTimer = setTimeout(() => this.connect(), backoffMs(attempt, pace, this.random()));
  }

  private disconnect(): void {
    for (const timer of [this.idleTimer, this.retryTimer, this.socketTimer]) {
      clearTimeout(timer);
    }
    this.idleTimer = this.retryTimer = this.socketTimer = undefined;
    this.trial?.close();
    this.link?.close();
    this.trial = this.link = null;
  }

  private become(state: ConnectionState): void {
    if (this.currentState !== state) {
      this.currentState = state;
      for (const on of [...this.listeners]) {
        on();
      }
    }
  }

  private readonly onVisibility = (): void => {
    clearTimeout(this.hiddenTimer);
    if (this.page?.visibilityState === 'hidden') {
      this.hiddenTimer = setTimeout(() => (this.subscriptions.isQuiet = true), HIDDEN_MS);
    } else {
      this.subscriptions.isQuiet = false;
      this.retry();
    }
  };

  private readonly onOnline = (): void => this.retry();

  private readonly settings: ServerConnection.ISettings;
  private readonly random: () => number;
  private readonly page: Document | undefined;
  private readonly subscriptions = new Subscriptions(() => this.onWantedChange());
  private readonly listeners = new Set<() => void>();
  private link: Link | null = null;
  private trial: Link | null = null;
  private instance: string | null = null;
  private clockOffset = 0;
  private attempts = 0;
  /** When the server last said hello, until that link breaks. */
  private greetedAt: number | null = null;
  /** Nobody has to read of a connection that is only being made. */
  private currentState: ConnectionState = 'connected';
  private refusal: StreamProblem | null = null;
  private isUpdating = false;
  private isDisposed = false;
  private idleTimer: ReturnType<typeof setTimeout> | undefined;
  private retryTimer: ReturnType<typeof setTimeout> | undefined;
  private socketTimer: ReturnType<typeof setTimeout> | undefined;
  private hiddenTimer: ReturnType<typeof setTimeout> | undefined;
}
