/** The jobs that the sidebar lists: the newest first, as the stream says. Knows no DOM. */
import type { Subscription } from '../views/source';
import { TERMINAL_STATES } from '../protocol';
import type { JobsFrame, JobSummary, StreamError } from '../protocol';
import type { Stream } from '../stream';

const MOST_JOBS = 500;

export class JobList {
  /** `onEnd`: a job that was seen unfinished has ended. */
  constructor(
    private readonly stream: Pick<Stream, 'follow'>,
    private readonly onEnd: (job: JobSummary) => void = () => undefined,
  ) {}

  /** Newest first. */
  get jobs(): readonly JobSummary[] {
    return this.ordered;
  }

  /** Whether the server has said what jobs there are. */
  get isKnown(): boolean {
    return this.known;
  }

  get failure(): StreamError | null {
    return this.failed;
  }

  get(jobId: string): JobSummary | undefined {
    return this.byId.get(jobId);
  }

  onChange(on: () => void): Subscription {
    const call = (): void => on();
    this.listeners.add(call);
    return { dispose: () => void this.listeners.delete(call) };
  }

  /** Follow the jobs, or leave off; what is listed stays. */
  follow(isFollowed: boolean): void {
    if (isFollowed && this.subscription === null) {
      this.failed = null;
      this.subscription = this.stream.follow(
        { kind: 'jobs', limit: MOST_JOBS, after: null },
        {
          onJobs: frame => this.take(frame),
          onFailed: error => {
            this.subscription = null;
            this.failed = error;
            this.tell();
          },
        },
      );
    } else if (!isFollowed) {
      this.subscription?.dispose();
      this.subscription = null;
    }
  }

  private take(frame: JobsFrame): void {
    const before = new Map(this.byId);
    if (frame.whole) {
      this.byId.clear();
    }
    for (const job of frame.jobs) {
      this.byId.set(job.job_id, job);
    }
    this.ordered = [...this.byId.values()].sort(
      (one, other) => other.created_at - one.created_at || (other.job_id < one.job_id ? -1 : 1),
    );
    for (const job of this.ordered.splice(MOST_JOBS)) {
      this.byId.delete(job.job_id);
    }
    this.known = true;
    this.failed = null;
    this.tell();
    for (const job of frame.jobs) {
      const seen = before.get(job.job_id);
      if (seen !== undefined && !isOver(seen) && isOver(job)) {
        this.onEnd(job);
      }
    }
  }

  private tell(): void {
    for (const on of [...this.listeners]) {
      on();
    }
  }

  private readonly byId = new Map<string, JobSummary>();
  private readonly listeners = new Set<() => void>();
  private ordered: JobSummary[] = [];
  private known = false;
  private failed: StreamError | null = null;
  private subscription: Subscription | null = null;
}

export function isOver(job: JobSummary): boolean {
  return TERMINAL_STATES.includes(job.state);
}
