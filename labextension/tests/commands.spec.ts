import type { JupyterFrontEnd } from '@jupyterlab/application';
import { CommandRegistry } from '@lumino/commands';
import { Widget } from '@lumino/widgets';
import { CommandIDs, SIDEBAR_ID } from '../src/command_ids';
import { commandsPlugin } from '../src/commands';
import { JobSources } from '../src/model';
import { Stream } from '../src/stream';
import type { IGpulayer } from '../src/tokens';
import { plainTranslator } from '../src/widget/plain_translator';
import { FakeServer, settle } from './support/fake_server';
import { JOB_ID, jobStatus } from './support/records';

const trans = plainTranslator as unknown as IGpulayer['trans'];

let server: FakeServer;
let gpulayer: IGpulayer;
let commands: CommandRegistry;
let shell: { add: jest.Mock; activateById: jest.Mock; currentWidget: Widget | null };
let palette: { addItem: jest.Mock };

beforeEach(() => {
  server = new FakeServer();
  const { settings } = server;
  const stream = new Stream({ settings });
  const sources = new JobSources(stream, settings);
  gpulayer = { stream, settings, sources, trans, openInPanel: null, source: jobId => sources.get(jobId, { trans }) };
  commands = new CommandRegistry();
  shell = {
    add: jest.fn((widget: Widget) => {
      Widget.attach(widget, document.body);
      shell.currentWidget = widget;
    }),
    activateById: jest.fn(),
    currentWidget: null,
  };
  palette = { addItem: jest.fn() };
  const app = { commands, shell } as unknown as JupyterFrontEnd;
  void commandsPlugin.activate(app, gpulayer, palette, null, null);
});

afterEach(() => {
  shell.currentWidget?.dispose();
  gpulayer.stream.dispose();
  document.body.replaceChildren();
});

const dialog = (): HTMLElement | null => document.querySelector('.jp-Dialog');
const press = (words: string): void =>
  [...document.querySelectorAll<HTMLButtonElement>('.jp-Dialog button')]
    .find(one => one.textContent === words)
    ?.click();

async function shown<T>(find: () => T | null): Promise<T> {
  for (let turn = 0; turn < 50; turn += 1) {
    const found = find();
    if (found !== null) {
      return found;
    }
    await new Promise(resolve => requestAnimationFrame(resolve));
  }
  throw new Error('It is not shown.');
}

it('every command is in the palette, and says what it takes', async () => {
  expect(palette.addItem.mock.calls.map(([item]) => item.command)).toEqual(Object.values(CommandIDs));
  for (const id of Object.values(CommandIDs)) {
    const { args } = await commands.describedBy(id);
    expect(args).toMatchObject({ type: 'object', additionalProperties: false });
  }
});

it.each([{}, { job_id: 'j1' }, { job_id: '../../../api/shutdown' }, { job_id: 7 }])('%j names no job', async args => {
  expect(commands.isEnabled(CommandIDs.openJob, args)).toBe(false);
  await commands.execute(CommandIDs.cancelJob, args);
  await commands.execute(CommandIDs.openJob, args);
  expect(shell.add).not.toHaveBeenCalled();
  expect(dialog()).toBeNull();
});

it('a job opens once, is named as the job is, and ends what it follows when it is closed', async () => {
  await commands.execute(CommandIDs.openJob, { job_id: JOB_ID });
  await commands.execute(CommandIDs.openJob, { job_id: JOB_ID });
  expect(shell.add).toHaveBeenCalledTimes(1);
  expect(shell.activateById).toHaveBeenCalledTimes(2);
  await settle();
  server.socket.open();
  await settle();
  const asked = server.socket.subscribed('job')!;
  expect(asked.to).toMatchObject({ job_id: JOB_ID, shows: false });
  server.socket.say({ type: 'job', id: asked.id, status: jobStatus({ name: 'digits' }) });
  expect(shell.currentWidget?.title.label).toBe('digits');
  shell.currentWidget?.dispose();
  await settle();
  const kept = new Set(server.socket.sent.filter(one => one.type === 'subscribe').map(({ id }) => id));
  server.socket.sent.filter(one => one.type === 'unsubscribe').forEach(({ id }) => kept.delete(id));
  expect([...kept]).toEqual([]);
});

it('the output’s button opens the same panel', async () => {
  gpulayer.openInPanel?.(JOB_ID);
  await settle();
  expect(shell.add).toHaveBeenCalledTimes(1);
});

it('Stop asks first, and tells the server only after a yes', async () => {
  let over = commands.execute(CommandIDs.cancelJob, { job_id: JOB_ID, name: 'digits' });
  await shown(() => (/Stop digits\?/.test(dialog()?.textContent ?? '') ? dialog() : null));
  press('Keep it');
  await over;
  expect(server.calls).toEqual([]);
  over = commands.execute(CommandIDs.cancelJob, { job_id: JOB_ID, name: 'digits', force: true });
  await shown(dialog);
  press('Stop');
  const call = await shown(() => server.calls[0] ?? null);
  expect(call).toMatchObject({ method: 'POST', body: { force: true } });
  expect(call.url).toContain(`/user/x/gpulayer/v1/jobs/${JOB_ID}/cancel`);
  call.answer(200, {});
  await over;
  expect(dialog()).toBeNull();
});

it('says why a job was not stopped', async () => {
  const over = commands.execute(CommandIDs.cancelJob, { job_id: JOB_ID });
  await shown(dialog);
  press('Stop');
  (await shown(() => server.calls[0] ?? null)).fail();
  const told = await shown(
    () => [...document.querySelectorAll('.jp-Dialog')].find(one => /not stopped/.test(one.textContent ?? '')) ?? null,
  );
  expect(told.textContent).toContain('cannot be reached');
  told.querySelector<HTMLButtonElement>('.jp-Dialog-footer button')?.click();
  await over;
});

it('the list of jobs is shown', async () => {
  await commands.execute(CommandIDs.showJobs);
  expect(shell.activateById).toHaveBeenCalledWith(SIDEBAR_ID);
});
