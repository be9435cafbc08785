/**
 * One WebSocket to `v1/stream`, made as Jupyter's own are: by the settings of the services, with their address and token. It
 * tells the server what is wanted and lets frames through; it does not reconnect (`../stream.ts` does).
 */
import { URLExt } from '@jupyterlab/coreutils';
import type { ServerConnection } from '@jupyterlab/services';
import { API_PREFIX, STREAM_PATH } from '../protocol';
import type { StreamFrame, StreamRequest } from '../protocol';
import { Asking } from './asking';
import type { Link, LinkEvents } from './link';
import type { Subscriptions } from './subscriptions';

/** A proxy may take a socket and never carry it on. */
const HELLO_MS = 10_000;

export class SocketLink implements Link {
  constructor(settings: ServerConnection.ISettings, events: LinkEvents) {
    this.events = events;
    this.socket = new settings.WebSocket(streamUrl(settings));
    this.socket.onmessage = event => this.onMessage(event);
    this.socket.onclose = () => this.lose();
    this.socket.onerror = () => this.lose();
    this.helloTimer = setTimeout(() => this.lose(), HELLO_MS);
  }

  update(subscriptions: Subscriptions): void {
    if (!this.isOpen) {
      return;
    }
    for (const request of this.asking.catchUp(subscriptions)) {
      this.send(request);
    }
  }

  close(): void {
    this.isClosed = true;
    this.detach();
  }

  private onMessage(event: MessageEvent): void {
    let frame: StreamFrame;
    try {
      frame = JSON.parse(String(event.data)) as StreamFrame;
    } catch {
      this.lose(); // not our server: a proxy's page, or a frame that was cut
      return;
    }
    if (!this.isOpen) {
      if (frame.type !== 'hello') {
        this.lose();
        return;
      }
      this.isOpen = true;
      clearTimeout(this.helloTimer);
      this.events.onOpen({ instance: frame.instance, protocol: frame.protocol, serverTime: frame.time });
      return;
    }
    this.events.onFrame(frame);
  }

  private send(request: StreamRequest): void {
    // A socket that is closing says so soon; everything is asked anew over the next one.
    if (this.socket.readyState === 1) {
      this.socket.send(JSON.stringify(request));
    }
  }

  private lose(): void {
    if (this.isClosed) {
      return;
    }
    this.isClosed = true;
    this.detach();
    this.events.onLost({ wasOpen: this.isOpen, status: null });
  }

  private detach(): void {
    clearTimeout(this.helloTimer);
    this.socket.onmessage = this.socket.onclose = this.socket.onerror = null;
    this.socket.close();
  }

  private readonly socket: WebSocket;
  private readonly events: LinkEvents;
  private readonly helloTimer: ReturnType<typeof setTimeout>;
  private readonly asking = new Asking();
  private isOpen = false;
  private isClosed = false;
}

function streamUrl(settings: ServerConnection.ISettings): string {
  const url = URLExt.join(settings.wsUrl, API_PREFIX, STREAM_PATH);
  const token = settings.appendToken && settings.token !== '' ? `?token=${encodeURIComponent(settings.token)}` : '';
  return url + token;
}
