/** A note when a long job has ended, as far as the settings want one. */
import { Notification } from '@jupyterlab/apputils';
import type { ISettingRegistry } from '@jupyterlab/settingregistry';
import type { CommandRegistry } from '@lumino/commands';
import { CommandIDs, SETTINGS_ID } from './command_ids';
import type { JobSummary } from './protocol';
import type { IGpulayer } from './tokens';
import { phaseOf, phaseWord } from './views/state_marks';
import { took } from './views/units';

/** Whoever started a shorter job has probably seen it end. */
const WORTH_A_NOTE_SECONDS = 60;

/** Says when a job has ended that ran for long, where the settings want that. */
export class EndNotes {
  constructor(
    private readonly commands: Pick<CommandRegistry, 'execute'>,
    private readonly gpulayer: Pick<IGpulayer, 'trans'>,
    private readonly registry: Pick<ISettingRegistry, 'load'> | null,
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
