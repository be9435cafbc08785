/** The sidebar: jobs with their state, live, with Stop; and a note when a long job has ended. */
import { ILayoutRestorer } from '@jupyterlab/application';
import type { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { Notification } from '@jupyterlab/apputils';
import { ISettingRegistry } from '@jupyterlab/settingregistry';
import type { CommandRegistry } from '@lumino/commands';
import { CommandIDs, SETTINGS_ID, SIDEBAR_ID } from './command_ids';
import { gpulayerIcon } from './icon';
import type { JobSummary } from './protocol';
import { JobList } from './sidebar/job_list';
import { JobsSidebar } from './sidebar/jobs_sidebar';
import { IGpulayer } from './tokens';
import { phaseOf, phaseWord } from './views/state_marks';
import { took } from './views/units';

/** Whoever started a shorter job has probably seen it end. */
const WORTH_A_NOTE_SECONDS = 60;

export const sidebarPlugin: JupyterFrontEndPlugin<void> = {
  id: SETTINGS_ID,
  description: 'The sidebar with the jobs.',
  autoStart: true,
  requires: [IGpulayer],
  optional: [ILayoutRestorer, ISettingRegistry],
  activate: (
    app: JupyterFrontEnd,
    gpulayer: IGpulayer,
    restorer: ILayoutRestorer | null,
    settingRegistry: ISettingRegistry | null,
  ): void => {
    const notes = new EndNotes(app.commands, gpulayer, settingRegistry);
    const list = new JobList(gpulayer.stream, job => notes.say(job));
    const sidebar = new JobsSidebar(list, gpulayer, app.commands);
    sidebar.title.icon = gpulayerIcon;
    // Notebook 7 has the same side areas, closed until they are asked for.
    app.shell.add(sidebar, 'left', { rank: 600, type: 'GPUlayer' });
    restorer?.add(sidebar, SIDEBAR_ID);
    void notes.read().then(() => {
      notes.onChange = () => sidebar.setWatches(notes.isOn);
      sidebar.setWatches(notes.isOn);
    });
  },
};

/** Says when a job has ended that ran for long, where the settings want that. */
class EndNotes {
  constructor(
    private readonly commands: CommandRegistry,
    private readonly gpulayer: IGpulayer,
    private readonly registry: ISettingRegistry | null,
  ) {}

  onChange: () => void = () => undefined;

  get isOn(): boolean {
    return this.settings?.composite['notifyJobEnd'] === true;
  }

  async read(): Promise<void> {
    try {
      this.settings = (await this.registry?.load(SETTINGS_ID)) ?? null;
    } catch (error) {
      console.warn('gpulayer: its settings cannot be read', error);
      return;
    }
    this.settings?.changed.connect(() => this.onChange());
  }

  say(job: JobSummary): void {
    const { trans } = this.gpulayer;
    const seconds = (job.ended_at ?? 0) - (job.started_at ?? job.created_at);
    if (!this.isOn || seconds < WORTH_A_NOTE_SECONDS) {
      return;
    }
    const text = trans.__('%1: %2 after %3', job.name, phaseWord(phaseOf(job), trans), took(seconds));
    Notification.emit(text, job.state === 'failed' ? 'error' : 'info', {
      autoClose: job.state === 'failed' ? false : 8_000,
      actions: [
        {
          label: trans.__('Open'),
          callback: () => void this.commands.execute(CommandIDs.openJob, { job_id: job.job_id }),
        },
        { label: trans.__('Do not show again'), callback: () => void this.settings?.set('notifyJobEnd', false) },
      ],
    });
  }

  private settings: ISettingRegistry.ISettings | null = null;
}
