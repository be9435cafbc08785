/** What the two ways to the server have in common: one WebSocket (`socket.ts`), or one long poll at a time (`poll.ts`). */
import type { StreamFrame } from '../protocol';
import type { Subscriptions } from './subscriptions';

export interface LinkEvents {
  /** The server answers. `serverTime`: UTC seconds by its clock, where it said so. `instance`: of its start, where known. */
  onOpen(hello: { instance: string | null; protocol: number | null; serverTime: number | null }): void;
  onFrame(frame: StreamFrame): void;
  /** It has ended, by itself; once, and nothing after it. `status`: of an HTTP answer that refused. */
  onLost(lost: { wasOpen: boolean; status: number | null }): void;
}

export interface Link {
  /** What is wanted has changed. */
  update(subscriptions: Subscriptions): void;
  close(): void;
}
