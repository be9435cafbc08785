import { Widget } from '@lumino/widgets';
import { JobsSidebar } from '../../src/sidebar/jobs_sidebar';
import { JobList } from '../../src/sidebar/job_list';
import { Stream } from '../../src/stream';
import type { IGpulayer } from '../../src/tokens';
import { plainTranslator } from '../../src/widget/plain_translator';
import { FakeServer, settle } from '../support/fake_server';
import { JOB_ID, jobSummary } from '../support/records';

let server: FakeServer;
let stream: Stream;
let sidebar: JobsSidebar;
const execute = jest.fn();

beforeEach(() => {
  execute.mockReset();
  server = new FakeServer();
  stream = new Stream({ settings: server.settings });
  sidebar = new JobsSidebar(
    new JobList(stream),
    { stream, trans: plainTranslator as unknown as IGpulayer['trans'] },
    { execute },
  );
});

afterEach(() => {
  sidebar.dispose();
  stream.dispose();
});

it('follows jobs while it is seen', async () => {
  sidebar.hide();
  Widget.attach(sidebar, document.body);
  await settle();
  expect(server.sockets).toHaveLength(0);
  sidebar.show();
  await settle();
  server.socket.open();
  expect(server.socket.subscribed('jobs')?.to).toEqual({ kind: 'jobs', limit: 500, after: null });
  sidebar.hide();
  await settle();
  expect(server.socket.sent.at(-1)?.type).toBe('unsubscribe');
});

it('follows them hidden too where ends are to be told', async () => {
  sidebar.hide();
  Widget.attach(sidebar, document.body);
  sidebar.setWatches(true);
  await settle();
  server.socket.open();
  expect(server.socket.subscribed('jobs')).toBeDefined();
});

it('opens and stops by commands', async () => {
  Widget.attach(sidebar, document.body);
  await settle();
  server.socket.open();
  server.socket.say({ type: 'jobs', id: 1, jobs: [jobSummary()], next: 1, whole: true });
  const [open, stop] = [...sidebar.node.querySelectorAll('button')];
  open!.click();
  stop!.click();
  expect(execute.mock.calls).toEqual([
    ['gpulayer:open-job', { job_id: JOB_ID }],
    ['gpulayer:cancel-job', { job_id: JOB_ID, name: 'train' }],
  ]);
});
