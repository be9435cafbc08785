// One tab's stream on a pretended server, anew for each test, with a clock that tests move by hand.
import { Stream } from '../../src/stream';
import { FakeServer, settle } from './fake_server';
import { JOB_ID } from './records';

export const LOGS = { kind: 'logs', job_id: JOB_ID, rank: null, after: 0, tail_bytes: 1000 } as const;
export const JOB = { kind: 'job', job_id: JOB_ID, after_revision: null, shows: false } as const;

export class Tab {
  server!: FakeServer;
  stream!: Stream;

  begin(options: ConstructorParameters<typeof FakeServer>[0] = {}, page?: Document): void {
    this.server = new FakeServer(options);
    this.stream = new Stream({ settings: this.server.settings, random: () => 0.5, page });
  }

  /** Follows all ranks' output; gives the sequences that came. */
  followLogs(): number[] {
    const got: number[] = [];
    this.stream.follow(LOGS, { onLogs: page => got.push(...page.chunks.map(chunk => chunk.sequence)) });
    return got;
  }

  async connected(instance = 'first'): Promise<void> {
    await settle();
    this.server.socket.open(instance);
  }
}

/** The tab of each of a file's tests. */
export function tabOfEachTest(): Tab {
  const tab = new Tab();
  beforeEach(() => {
    jest.useFakeTimers({ doNotFake: ['queueMicrotask'] });
    tab.begin();
  });
  afterEach(() => {
    tab.stream.dispose();
    jest.useRealTimers();
  });
  return tab;
}
