/**
 * What a tab follows, and how far each of it has come. Frames move cursors here and nowhere else, so that a link may break
 * at any byte: what is asked for next begins where the last frame ended. Knows no socket and no poll.
 */
import type { Subscription } from '../views/source';
import { MOST_SUBSCRIPTIONS, TERMINAL_STATES } from '../protocol';
import type { Followed, JobsFrame, JobStatus, LogPage, MetricPage, StreamError, StreamFrame } from '../protocol';

/** Called with each kind of frame; a subscription has those of its own kind. */
export interface Listener {
  onJob?(status: JobStatus): void;
  onLogs?(page: LogPage): void;
  onMetrics?(page: MetricPage): void;
  onJobs?(frame: JobsFrame): void;
  /** It is over: nothing more comes. */
  onFailed?(error: StreamError): void;
}

/** What is asked for now under an id. `version` differs where it has to be asked anew. */
export interface Wanted {
  id: number;
  version: number;
  to: Followed;
}

const REST_MS = 3_000;

interface Entry {
  id: number;
  version: number;
  to: Followed;
  listener: Listener;
  /** The revision or cursor of the last frame; null before the first one. */
  reached: number | null;
  isComplete: boolean;
  /** A job's record that will hardly change: it gives way where there are too many. */
  isOver: boolean;
  isResting: boolean;
}

export class Subscriptions {
  /**
   * @param onChange - What is wanted has changed, apart from cursors.
   * @param nextId - The first id; more than one tab may name ids to a kernel.
   */
  constructor(
    private readonly onChange: () => void,
    private nextId = 1,
  ) {}

  get size(): number {
    return this.entries.size;
  }

  /** Logs and metrics are not wanted while nobody can see them; their cursors stay. */
  get isQuiet(): boolean {
    return this.quiet;
  }

  set isQuiet(value: boolean) {
    if (this.quiet !== value) {
      this.quiet = value;
      this.onChange();
    }
  }

  add(to: Followed, listener: Listener): FollowSubscription {
    const entry: Entry = {
      id: this.nextId++,
      version: 0,
      to,
      listener,
      reached: null,
      isComplete: false,
      isOver: false,
      isResting: false,
    };
    this.entries.set(entry.id, entry);
    this.onChange();
    return {
      dispose: () => {
        if (this.entries.delete(entry.id)) {
          this.onChange();
        }
      },
      setShows: shows => {
        if (entry.to.kind === 'job' && (entry.to.shows ?? false) !== shows) {
          entry.to = { ...entry.to, shows };
          entry.version += 1;
          this.onChange();
        }
      },
    };
  }

  /** At most as many as a tab may follow: jobs that have ended give way first, then what came last. */
  wanted(): Wanted[] {
    const open = [...this.entries.values()].filter(
      entry => !entry.isComplete && !entry.isResting && !(this.quiet && isBulk(entry.to)),
    );
    const chosen =
      open.length <= MOST_SUBSCRIPTIONS
        ? open
        : [...open.filter(entry => !entry.isOver), ...open.filter(entry => entry.isOver)].slice(0, MOST_SUBSCRIPTIONS);
    return chosen.map(entry => ({ id: entry.id, version: entry.version, to: continued(entry) }));
  }

  /** Another start of the server: records and lists are read anew, logs and metrics go on, since their cursors are stored. */
  forgetRevisions(): void {
    for (const entry of this.entries.values()) {
      if (!isBulk(entry.to)) {
        entry.reached = null;
      }
    }
  }

  /** Moves the cursor and tells the listener; what it has had already is dropped. */
  take(frame: StreamFrame): void {
    if (frame.type === 'hello' || frame.id === null) {
      return;
    }
    const entry = this.entries.get(frame.id);
    if (entry === undefined || entry.isComplete) {
      return;
    }
    switch (frame.type) {
      case 'job':
        if (entry.reached === null || frame.status.revision > entry.reached) {
          entry.reached = frame.status.revision;
          this.end(entry, TERMINAL_STATES.includes(frame.status.state));
          entry.listener.onJob?.(frame.status);
        }
        return;
      case 'jobs':
        if (frame.whole || entry.reached === null || frame.next > entry.reached) {
          entry.reached = frame.next;
          entry.listener.onJobs?.(frame);
        }
        return;
      case 'logs':
        if (isAhead(entry, frame.page)) {
          const cursor = entry.reached ?? 0;
          const chunks = frame.page.chunks.filter(chunk => chunk.sequence > cursor);
          this.reach(entry, frame.page);
          entry.listener.onLogs?.({ ...frame.page, chunks });
        }
        return;
      case 'metrics':
        if (isAhead(entry, frame.page)) {
          const cursor = entry.reached ?? 0;
          const batches = frame.page.batches.filter(batch => batch.sequence > cursor);
          this.reach(entry, frame.page);
          entry.listener.onMetrics?.({ ...frame.page, batches });
        }
        return;
      case 'failed':
        if (frame.error.status >= 500) {
          this.rest(entry);
          return;
        }
        this.entries.delete(entry.id);
        this.onChange();
        entry.listener.onFailed?.(frame.error);
    }
  }

  /**
   * A frame that nobody asked for: whoever follows that job, its log or its metrics takes it. `after`: the cursor at which its
   * page begins; what has come less far waits for its own. Gives whether anybody took it.
   */
  offer(frame: StreamFrame, after: number | null): boolean {
    let isTaken = false;
    for (const entry of [...this.entries.values()]) {
      const isBehind = after !== null && after <= (entry.reached ?? 0);
      if (frame.type !== entry.to.kind || (frame.type !== 'job' && !isBehind)) {
        continue;
      }
      isTaken = true;
      const rank = entry.to.kind === 'logs' ? (entry.to.rank ?? null) : null;
      if (frame.type === 'logs' && rank !== null) {
        const chunks = frame.page.chunks.filter(chunk => chunk.rank === rank);
        this.take({ ...frame, id: entry.id, page: { ...frame.page, chunks } });
      } else {
        this.take({ ...frame, id: entry.id });
      }
    }
    return isTaken;
  }

  /** Every subscription is over, for one reason. */
  failAll(error: StreamError): void {
    for (const id of [...this.entries.keys()]) {
      this.take({ type: 'failed', id, error });
    }
  }

  /** The server could not serve it at the moment, as while it stops: asked anew after a while. */
  private rest(entry: Entry): void {
    entry.isResting = true;
    entry.version += 1;
    this.onChange();
    setTimeout(() => {
      entry.isResting = false;
      this.onChange();
    }, REST_MS);
  }

  private end(entry: Entry, isOver: boolean): void {
    if (entry.isOver !== isOver) {
      entry.isOver = isOver;
      if (this.entries.size > MOST_SUBSCRIPTIONS) {
        this.onChange(); // there is room for another
      }
    }
  }

  private reach(entry: Entry, page: { next: number; complete: boolean }): void {
    entry.reached = page.next;
    if (page.complete) {
      entry.isComplete = true;
      this.onChange();
    }
  }

  private readonly entries = new Map<number, Entry>();
  private quiet = false;
}

export interface FollowSubscription extends Subscription {
  /** Of a job's record: whether an output view draws it. */
  setShows(shows: boolean): void;
}

function isBulk(to: Followed): boolean {
  return to.kind === 'logs' || to.kind === 'metrics';
}

/** Whether a page does not lie wholly behind the cursor, as one does that was on its way when its id was begun anew. */
function isAhead(entry: Entry, page: { next: number }): boolean {
  return entry.reached === null || page.next >= entry.reached;
}

function continued(entry: Entry): Followed {
  const { to, reached } = entry;
  if (reached === null) {
    return to;
  }
  switch (to.kind) {
    case 'job':
      return { ...to, after_revision: reached };
    case 'logs':
      // The tail was for the beginning: what lies behind a cursor is wanted whole.
      return reached === 0 ? to : { ...to, after: reached, tail_bytes: null };
    default:
      return { ...to, after: reached };
  }
}
