/**
 * The way to the server where no WebSocket comes through: one long poll at a time carries all that is wanted. A poll that is
 * held is given up when something else is wanted; what it would have brought comes with the next, since no cursor moved.
 */
import type { ServerConnection } from '@jupyterlab/services';
import type { ReadStream, StreamFrames } from '../protocol';
import { RequestError, request } from '../requests';
import type { Link, LinkEvents } from './link';
import type { Subscriptions } from './subscriptions';

const WAIT_SECONDS = 25;
/** A server that answers at once without anything must not be asked in a loop. */
const LEAST_MS_BETWEEN_EMPTY = 1_000;

export class PollLink implements Link {
  constructor(
    private readonly settings: ServerConnection.ISettings,
    private readonly subscriptions: Subscriptions,
    private readonly events: LinkEvents,
  ) {
    void this.poll(0);
  }

  update(): void {
    const wanted = JSON.stringify(this.subscriptions.wanted().map(({ id, version }) => [id, version]));
    if (this.isOpen && wanted !== this.asked) {
      this.again();
    }
  }

  close(): void {
    this.isClosed = true;
    clearTimeout(this.timer);
    this.held?.abort();
  }

  private again(): void {
    clearTimeout(this.timer);
    this.held?.abort();
    void this.poll(WAIT_SECONDS);
  }

  private async poll(wait: number): Promise<void> {
    const held = new AbortController();
    this.held = held;
    const wanted = this.subscriptions.wanted();
    this.asked = JSON.stringify(wanted.map(({ id, version }) => [id, version]));
    const body: ReadStream = { wait, subscriptions: Object.fromEntries(wanted.map(({ id, to }) => [id, to])) };
    const begun = Date.now();
    let answer: StreamFrames;
    try {
      answer = await request<StreamFrames>(this.settings, 'v1/stream', {
        method: 'POST',
        body: JSON.stringify(body),
        signal: held.signal,
      });
    } catch (error) {
      if (!held.signal.aborted && !this.isClosed) {
        this.isClosed = true;
        this.events.onLost({
          wasOpen: this.isOpen,
          status: error instanceof RequestError ? error.details.status : null,
        });
      }
      return;
    }
    if (held.signal.aborted || this.isClosed) {
      return;
    }
    if (!this.isOpen) {
      this.isOpen = true;
      this.events.onOpen({ instance: null, protocol: null, serverTime: null });
    }
    for (const frame of answer.frames) {
      if (frame.type === 'hello') {
        this.events.onOpen({ instance: frame.instance, protocol: frame.protocol, serverTime: frame.time });
      } else {
        this.events.onFrame(frame);
      }
    }
    if (this.isOver(held)) {
      return; // a listener closed this, or asked for something else, which began a poll of its own
    }
    const isEmpty = answer.frames.length === 0 && wait > 0;
    const pause = isEmpty ? Math.max(0, LEAST_MS_BETWEEN_EMPTY - (Date.now() - begun)) : 0;
    this.timer = setTimeout(() => void this.poll(WAIT_SECONDS), pause);
  }

  private isOver(held: AbortController): boolean {
    return held.signal.aborted || this.isClosed;
  }

  private held: AbortController | null = null;
  private timer: ReturnType<typeof setTimeout> | undefined;
  private asked = '';
  private isOpen = false;
  private isClosed = false;
}
