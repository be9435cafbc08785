import type { IRenderMime } from '@jupyterlab/rendermime-interfaces';
import { Widget } from '@lumino/widgets';
import { JOB_MIME_TYPE, JobRenderer, jobIdOf, jobRendererFactory } from '../src/mime';
import { JobSources } from '../src/model';
import { Stream } from '../src/stream';
import { plainTranslator as trans } from '../src/widget/plain_translator';
import { FakeServer, settle } from './support/fake_server';
import { JOB_ID, jobStatus } from './support/records';

const OTHER = 'jffffffffffff';

let server: FakeServer;
let stream: Stream;
let renderer: JobRenderer;
let drawn: string[];
let ended: string[];

beforeEach(() => {
  jest.useFakeTimers({ doNotFake: ['queueMicrotask'] });
  server = new FakeServer();
  stream = new Stream({ settings: server.settings });
  const sources = new JobSources(stream, server.settings);
  drawn = [];
  ended = [];
  renderer = jobRendererFactory({
    trans,
    source: jobId => sources.get(jobId, { trans, shows: true }),
    draw: source => {
      drawn.push(source.jobId);
      const node = document.createElement('div');
      node.textContent = `view of ${source.jobId}`;
      return { node, dispose: () => void ended.push(source.jobId) };
    },
  }).createRenderer({} as IRenderMime.IRendererOptions) as JobRenderer;
  Widget.attach(renderer, document.body);
});

afterEach(() => {
  renderer.dispose();
  stream.dispose();
  jest.useRealTimers();
});

function render(data: unknown, text: unknown = 'job train · succeeded'): Promise<void> {
  return renderer.renderModel({
    data: { [JOB_MIME_TYPE]: data, 'text/plain': text },
  } as unknown as IRenderMime.IMimeModel);
}

async function known(): Promise<void> {
  await settle();
  server.socket.open();
  server.socket.say({ type: 'job', id: 1, status: jobStatus() });
}

it('is preferred to a widget’s view, and may draw what nobody trusts', () => {
  const factory = jobRendererFactory({ trans, source: jest.fn(), draw: jest.fn() });
  expect(factory).toMatchObject({ safe: true, defaultRank: -20, mimeTypes: [JOB_MIME_TYPE] });
});

it('shows the saved text until the record is here, then the view', async () => {
  await render({ job_id: JOB_ID });
  expect(renderer.node.textContent).toBe('job train · succeeded');
  await known();
  expect(renderer.node.textContent).toBe(`view of ${JOB_ID}`);
});

it('keeps its view when the output is rewritten for the same job', async () => {
  await render({ job_id: JOB_ID });
  await known();
  const before = renderer.node.firstChild;
  await render({ job_id: JOB_ID }, 'other text');
  expect(renderer.node.firstChild).toBe(before);
  expect(drawn).toEqual([JOB_ID]);
});

it('changes to another job', async () => {
  await render({ job_id: JOB_ID });
  await known();
  await render({ job_id: OTHER });
  expect(ended).toEqual([JOB_ID]);
  await settle();
  server.socket.say({ type: 'job', id: 2, status: jobStatus({ job_id: OTHER }) });
  expect(drawn).toEqual([JOB_ID, OTHER]);
});

it('stays with the saved text of a job that nobody knows here', async () => {
  await render({ job_id: JOB_ID });
  await settle();
  server.socket.open();
  const error = { code: 'unknown_job', status: 404, message: 'No such job.', asked: null, found: null, fix: null };
  server.socket.say({ type: 'failed', id: 1, error });
  expect(renderer.node.textContent).toContain('job train · succeeded');
  expect(renderer.node.textContent).toContain('does not know the job');
  expect(drawn).toEqual([]);
});

it('says that the server cannot be reached, and draws once it can', async () => {
  await render({ job_id: JOB_ID });
  for (let turn = 0; turn < 6; turn += 1) {
    await settle();
    server.socket.break();
    await settle();
    server.call.fail();
    await settle();
    jest.runOnlyPendingTimers(); // the next try
  }
  expect(renderer.node.textContent).toContain('cannot be reached');
  await known();
  expect(renderer.node.textContent).toBe(`view of ${JOB_ID}`);
});

describe('its claim', () => {
  function shown(): (boolean | undefined)[] {
    return server.socket.sent.flatMap(one => (one.type === 'subscribe' && one.to.kind === 'job' ? [one.to.shows] : []));
  }

  it('begins before the record is here, and outlasts a move', async () => {
    await render({ job_id: JOB_ID });
    await known();
    Widget.detach(renderer);
    jest.advanceTimersByTime(1_000);
    Widget.attach(renderer, document.body);
    jest.advanceTimersByTime(10_000);
    await settle();
    expect(shown()).toEqual([true]);
  });

  it('ends where the output is gone for longer', async () => {
    await render({ job_id: JOB_ID });
    await known();
    Widget.detach(renderer);
    jest.advanceTimersByTime(3_100);
    await settle();
    expect(shown()).toEqual([true, false]);
  });

  it('ends with the output', async () => {
    await render({ job_id: JOB_ID });
    await known();
    renderer.dispose();
    await settle();
    expect(server.socket.sent.at(-1)).toEqual({ type: 'unsubscribe', id: 1 });
    expect(ended).toEqual([JOB_ID]);
  });
});

describe('hostile outputs', () => {
  it.each([
    null,
    'j0123456789ab',
    ['j0123456789ab'],
    { job_id: '../../api/contents' },
    { job_id: 'j0123456789ab/cancel' },
    { job_id: 'http://evil.example/' },
    { job_id: ['j0123456789ab'] },
    { job_id: 12 },
    { url: 'http://evil.example/', JOB_ID: 'j0123456789ab' },
    Object.create({ job_id: 'j0123456789ab' }),
    { __proto__: { job_id: 'j0123456789ab' } },
  ])('%j names no job', async data => {
    expect(jobIdOf(data)).toBeNull();
    await render(data, 'text');
    await settle();
    expect(server.sockets).toHaveLength(0);
    expect(server.calls).toHaveLength(0);
    expect(renderer.node.textContent).toContain('names no job');
  });

  it('text is never markup', async () => {
    await render({ job_id: 'x' }, ['<img src=x onerror=alert(1)>', '<script>alert(1)</script>', 7]);
    expect(renderer.node.querySelector('img, script')).toBeNull();
    expect(renderer.node.textContent).toContain('<img src=x onerror=alert(1)><script>');
  });

  it('nothing else of an output is read', async () => {
    await render({ job_id: JOB_ID, token: 'x', server: 'http://evil.example/', html: '<b>x</b>' });
    await settle();
    expect(server.socket.url).toBe('ws://localhost:8888/user/x/gpulayer/v1/stream');
  });
});
