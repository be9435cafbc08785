/** A Jupyter server as the stream sees it: sockets that a test opens, answers and breaks, and requests that it answers. */
import type { ServerConnection } from '@jupyterlab/services';
import type { StreamFrame, StreamRequest } from '../../src/protocol';

export class FakeSocket {
  readyState = 0;
  readonly sent: StreamRequest[] = [];
  onmessage: ((event: { data: string }) => void) | null = null;
  onclose: (() => void) | null = null;
  onerror: (() => void) | null = null;

  constructor(readonly url: string) {}

  send(data: string): void {
    this.sent.push(JSON.parse(data) as StreamRequest);
  }

  close(): void {
    this.readyState = 3;
  }

  // ---- what the server does

  open(instance = 'first', more: { protocol?: number; time?: number } = {}): void {
    this.readyState = 1;
    this.say({ type: 'hello', version: '0.1.0', protocol: 1, instance, time: Date.now() / 1000, ...more });
  }

  say(frame: StreamFrame): void {
    this.onmessage?.({ data: JSON.stringify(frame) });
  }

  break(): void {
    this.readyState = 3;
    this.onclose?.();
  }

  /** The newest subscribe to what a test names by its kind. */
  subscribed(kind: string): Extract<StreamRequest, { type: 'subscribe' }> | undefined {
    return this.sent
      .filter(one => one.type === 'subscribe')
      .filter(one => one.to.kind === kind)
      .at(-1);
  }
}

export interface FakeCall {
  method: string;
  url: string;
  body: unknown;
  headers: Map<string, string>;
  answer(status: number, body: unknown): void;
  fail(): void;
}

class FakeRequest {
  readonly headers: Map<string, string> & { append(name: string, value: string): void };
  readonly signal: AbortSignal | undefined;
  readonly method: string;
  readonly body: unknown;

  constructor(
    readonly url: string,
    init: { method?: string; body?: string; signal?: AbortSignal },
  ) {
    const headers = new Map<string, string>();
    this.headers = Object.assign(headers, { append: (name: string, value: string) => void headers.set(name, value) });
    this.method = init.method ?? 'GET';
    this.body = init.body === undefined ? undefined : JSON.parse(init.body);
    this.signal = init.signal;
  }
}

export class FakeServer {
  readonly sockets: FakeSocket[] = [];
  readonly calls: FakeCall[] = [];
  readonly settings: ServerConnection.ISettings;

  constructor(options: { token?: string; appendToken?: boolean } = {}) {
    const { sockets, calls } = this;
    this.settings = {
      baseUrl: 'http://localhost:8888/user/x/',
      wsUrl: 'ws://localhost:8888/user/x/',
      appUrl: '/lab',
      token: options.token ?? '',
      appendToken: options.appendToken ?? false,
      init: {},
      Request: FakeRequest,
      Headers: Map,
      WebSocket: class extends FakeSocket {
        constructor(url: string) {
          super(url);
          sockets.push(this);
        }
      },
      fetch: (request: FakeRequest) =>
        new Promise((resolve, reject) => {
          request.signal?.addEventListener('abort', () => reject(new DOMException('aborted', 'AbortError')));
          calls.push({
            method: request.method,
            url: request.url,
            body: request.body,
            headers: request.headers,
            answer: (status, body) =>
              resolve({
                ok: status < 400,
                status,
                statusText: '',
                text: () => Promise.resolve(typeof body === 'string' ? body : JSON.stringify(body)),
              }),
            fail: () => reject(new TypeError('refused')),
          });
        }),
    } as unknown as ServerConnection.ISettings;
  }

  get socket(): FakeSocket {
    return this.sockets.at(-1)!;
  }

  get call(): FakeCall {
    return this.calls.at(-1)!;
  }
}

/** Lets everything that waits for a promise go on; no timer runs. */
export async function settle(): Promise<void> {
  for (let turn = 0; turn < 20; turn += 1) {
    await Promise.resolve();
  }
}
