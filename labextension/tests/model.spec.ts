import type { JobStatus, StreamError } from '../src/protocol';
import { isJobId, JobSources } from '../src/model';
import { Stream } from '../src/stream';
import { plainTranslator as trans } from '../src/widget/plain_translator';
import { FakeServer, settle } from './support/fake_server';
import { JOB_ID, jobStatus, logPage } from './support/records';

let server: FakeServer;
let stream: Stream;
let sources: JobSources;

beforeEach(() => {
  server = new FakeServer({ token: 'secret' });
  stream = new Stream({ settings: server.settings });
  sources = new JobSources(stream, server.settings);
});

afterEach(() => stream.dispose());

async function connected(): Promise<void> {
  await settle();
  server.socket.open();
}

function shown(): (boolean | undefined)[] {
  return server.socket.sent.flatMap(one => (one.type === 'subscribe' && one.to.kind === 'job' ? [one.to.shows] : []));
}

it.each([
  ['j0123456789ab', true],
  ['J0123456789ab', false],
  ['j0123456789a', false],
  ['j0123456789abc', false],
  ['../j0123456789ab', false],
  ['j0123456789ab\n', false],
  ['', false],
  [undefined, false],
  [['j0123456789ab'], false],
  [{ job_id: 'j0123456789ab' }, false],
])('the id %j is one: %s', (value, expected) => {
  expect(isJobId(value)).toBe(expected);
});

describe('records', () => {
  it('are followed once, however many views there are, and the late one has it at once', async () => {
    const seen: string[] = [];
    const first = sources.get(JOB_ID, { trans }).job(status => seen.push(`first ${status.revision}`), jest.fn());
    await connected();
    server.socket.say({ type: 'job', id: 1, status: jobStatus({ revision: 4 }) });
    const second = sources.get(JOB_ID, { trans }).job(status => seen.push(`second ${status.revision}`), jest.fn());
    expect(seen).toEqual(['first 4']);
    await settle();
    expect(seen).toEqual(['first 4', 'second 4']);
    expect(server.socket.sent).toHaveLength(1);
    first.dispose();
    await settle();
    expect(server.socket.sent).toHaveLength(1);
    second.dispose();
    await settle();
    expect(server.socket.sent.at(-1)).toEqual({ type: 'unsubscribe', id: 1 });
  });

  it('tell nothing to a view that has gone meanwhile', async () => {
    sources.get(JOB_ID, { trans }).job(jest.fn(), jest.fn());
    await connected();
    server.socket.say({ type: 'job', id: 1, status: jobStatus() });
    const on = jest.fn();
    sources.get(JOB_ID, { trans }).job(on, jest.fn()).dispose();
    await settle();
    expect(on).not.toHaveBeenCalled();
  });

  it('count as shown while one of their views is an output', async () => {
    sources.get(JOB_ID, { trans }).job(jest.fn(), jest.fn());
    await connected();
    const output = sources.get(JOB_ID, { trans, shows: true });
    const subscription = output.job(jest.fn(), jest.fn());
    await settle();
    output.setShows(false);
    await settle();
    output.setShows(true);
    await settle();
    subscription.dispose();
    await settle();
    expect(shown()).toEqual([false, true, false, true, false]);
  });

  it('that nobody knows end for all, and can be asked for again', async () => {
    const errors: StreamError[] = [];
    const source = sources.get(JOB_ID, { trans });
    source.job(jest.fn(), error => errors.push(error));
    source.job(jest.fn(), error => errors.push(error));
    await connected();
    const error = { code: 'unknown_job', status: 404, message: 'No such job.', asked: null, found: null, fix: null };
    server.socket.say({ type: 'failed', id: 1, error });
    expect(errors).toEqual([error, error]);
    const seen: JobStatus[] = [];
    source.job(status => seen.push(status), jest.fn());
    await settle();
    server.socket.say({ type: 'job', id: 2, status: jobStatus() });
    expect(seen).toHaveLength(1);
  });
});

it('logs go on from a cursor, or begin with a tail', async () => {
  const source = sources.get(JOB_ID, { trans });
  const pages = jest.fn();
  source.logs({ rank: 1, tailBytes: 500 }, pages);
  source.logs({ rank: null, after: 7, tailBytes: 500 }, jest.fn());
  await connected();
  expect(server.socket.sent).toEqual([
    { type: 'subscribe', id: 1, to: { kind: 'logs', job_id: JOB_ID, rank: 1, after: 0, tail_bytes: 500 } },
    { type: 'subscribe', id: 2, to: { kind: 'logs', job_id: JOB_ID, rank: null, after: 7, tail_bytes: null } },
  ]);
  server.socket.say({ type: 'logs', id: 1, page: logPage([3]) });
  expect(pages).toHaveBeenCalledTimes(1);
});

describe('calls', () => {
  const base = 'http://localhost:8888/user/x/gpulayer/v1';

  it('cancel goes to the server, with Jupyter’s token', async () => {
    const done = sources.get(JOB_ID, { trans }).actions.cancel(true);
    expect(server.call).toMatchObject({ method: 'POST', url: `${base}/jobs/${JOB_ID}/cancel`, body: { force: true } });
    expect(server.call.headers.get('Authorization')).toBe('token secret');
    server.call.answer(200, jobStatus());
    await done;
  });

  it('an error names what the server said', async () => {
    const done = sources.get(JOB_ID, { trans }).actions.cancel(false);
    const error = {
      code: 'conflict',
      status: 409,
      message: 'It has ended.',
      asked: null,
      found: null,
      fix: 'Nothing to do.',
    };
    server.call.answer(409, { error });
    await expect(done).rejects.toMatchObject({ message: 'It has ended.', details: error });
  });

  it('an answer of somebody else is no success', async () => {
    const done = sources.get(JOB_ID, { trans }).readSource();
    server.call.answer(200, '<html>log in</html>');
    await expect(done).rejects.toThrow('What answered is not the Jupyter server.');
  });

  it('a server that is away is said to be', async () => {
    const done = sources.get(JOB_ID, { trans }).readSource();
    server.call.fail();
    await expect(done).rejects.toMatchObject({ details: { code: 'unreachable' } });
  });

  it('workers are started for this job', async () => {
    const done = sources.get(JOB_ID, { trans }).actions.startLocalWorkers!(2);
    expect(server.call).toMatchObject({ url: `${base}/workers/local`, body: { count: 2, job_id: JOB_ID } });
    server.call.answer(200, { workers: [] });
    await done;
  });

  it('the join command has a token of its own on standard input, and the server’s whole address', async () => {
    const command = sources.get(JOB_ID, { trans }).actions.joinCommand!();
    expect(server.call).toMatchObject({ method: 'POST', url: `${base}/tokens/join`, body: {} });
    server.call.answer(200, { token: 'gpj_abc', expires_at: 1 });
    expect(await command).toBe(
      "echo gpj_abc | gpulayer worker start --server 'http://localhost:8888/user/x/' --token-stdin",
    );
  });

  it('earlier output and the whole log are named by rank', async () => {
    const source = sources.get(JOB_ID, { trans });
    const page = source.earlierLogs({ rank: 0, before: 40, limitBytes: 1000 });
    expect(server.call.url).toBe(`${base}/jobs/${JOB_ID}/logs?before=40&limit_bytes=1000&rank=0`);
    server.call.answer(200, logPage([1]));
    expect((await page).next).toBe(1);
    expect(source.actions.logUrl!(null, 'plain')).toBe(`${base}/jobs/${JOB_ID}/log.txt?form=plain`);
    expect(source.actions.logUrl!(3, 'raw')).toBe(`${base}/jobs/${JOB_ID}/log.txt?form=raw&rank=3`);
  });
});
