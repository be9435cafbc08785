/** What one link has been asked for: says which requests make it what is wanted now. */
import type { StreamRequest } from '../protocol';
import type { Subscriptions } from './subscriptions';

export class Asking {
  /** The requests that are missing; they are taken as sent. */
  catchUp(subscriptions: Subscriptions): StreamRequest[] {
    const wanted = subscriptions.wanted();
    const ids = new Set(wanted.map(({ id }) => id));
    const requests: StreamRequest[] = [];
    for (const id of [...this.asked.keys()]) {
      if (!ids.has(id)) {
        this.asked.delete(id);
        requests.push({ type: 'unsubscribe', id });
      }
    }
    for (const { id, version, to } of wanted) {
      if (this.asked.get(id) !== version) {
        this.asked.set(id, version);
        requests.push({ type: 'subscribe', id, to });
      }
    }
    return requests;
  }

  /** id → the version that was asked for. */
  private readonly asked = new Map<number, number>();
}
