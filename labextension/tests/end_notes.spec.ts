import { Notification } from '@jupyterlab/apputils';
import type { ISettingRegistry } from '@jupyterlab/settingregistry';
import { Signal } from '@lumino/signaling';
import { CommandIDs } from '../src/command_ids';
import { EndNotes } from '../src/end_notes';
import type { IGpulayer } from '../src/tokens';
import { plainTranslator } from '../src/widget/plain_translator';
import { JOB_ID, jobSummary } from './support/records';

const trans = plainTranslator as unknown as IGpulayer['trans'];
const LONG = jobSummary({ state: 'succeeded', started_at: 1000, ended_at: 1075 });

/** Settings of one value, as the registry gives them. */
class FakeSettings {
  readonly changed = new Signal<this, void>(this);
  readonly composite: Record<string, unknown>;

  constructor(isOn: boolean) {
    this.composite = { notifyJobEnd: isOn };
  }

  set(name: string, value: unknown): Promise<void> {
    this.composite[name] = value;
    this.changed.emit();
    return Promise.resolve();
  }
}

let execute: jest.Mock;

beforeEach(() => {
  execute = jest.fn(() => Promise.resolve());
});

afterEach(() => Notification.dismiss());

async function notesOf(settings: FakeSettings): Promise<EndNotes> {
  const load = () => Promise.resolve(settings as unknown as ISettingRegistry.ISettings);
  const notes = new EndNotes({ execute }, { trans }, { load });
  await notes.read();
  return notes;
}

it('a long job’s end is told, with what opens it', async () => {
  const notes = await notesOf(new FakeSettings(true));
  notes.say(LONG);
  const [note] = Notification.manager.notifications;
  expect(note?.message).toBe('train: succeeded after 1:15');
  expect(note?.options.autoClose).toBeGreaterThan(0);
  note?.options.actions?.[0]?.callback(new MouseEvent('click'));
  expect(execute).toHaveBeenCalledWith(CommandIDs.openJob, { job_id: JOB_ID });
});

it('a failure stays until it was seen', async () => {
  const notes = await notesOf(new FakeSettings(true));
  notes.say({ ...LONG, state: 'failed' });
  expect(Notification.manager.notifications[0]).toMatchObject({ type: 'error', options: { autoClose: false } });
});

it('a short job, and one nobody wants to hear of, is not told', async () => {
  (await notesOf(new FakeSettings(true))).say({ ...LONG, ended_at: 1010 });
  (await notesOf(new FakeSettings(false))).say(LONG);
  new EndNotes({ execute }, { trans }, null).say(LONG);
  expect(Notification.manager.notifications).toEqual([]);
});

it('the note itself can turn notes off', async () => {
  const settings = new FakeSettings(true);
  const notes = await notesOf(settings);
  notes.onChange = jest.fn();
  notes.say(LONG);
  Notification.manager.notifications[0]?.options.actions?.[1]?.callback(new MouseEvent('click'));
  expect(notes.isOn).toBe(false);
  expect(notes.onChange).toHaveBeenCalled();
});

it('settings that cannot be read mean no notes, and no failure', async () => {
  const warn = jest.spyOn(console, 'warn').mockImplementation(() => undefined);
  const notes = new EndNotes({ execute }, { trans }, { load: () => Promise.reject(new Error('no such plugin')) });
  await notes.read();
  expect(notes.isOn).toBe(false);
  expect(warn).toHaveBeenCalledTimes(1);
  warn.mockRestore();
});
