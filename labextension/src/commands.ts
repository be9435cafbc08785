/** Commands on jobs, for the palette, the sidebar and whoever else calls them; and the panels that show one job each. */
import { ILabShell, ILayoutRestorer } from '@jupyterlab/application';
import type { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import {
  Dialog,
  ICommandPalette,
  MainAreaWidget,
  showDialog,
  showErrorMessage,
  WidgetTracker,
} from '@jupyterlab/apputils';
import type { Message } from '@lumino/messaging';
import { Widget } from '@lumino/widgets';
import { CommandIDs, SIDEBAR_ID } from './command_ids';
import { gpulayerIcon } from './icon';
import { cancelJob, isJobId } from './model';
import { RequestError } from './requests';
import { IGpulayer } from './tokens';
import { JobView } from './views/job_view';

const JOB_ID_ARGUMENT = { type: 'string', description: 'The job’s id; without it, the job of the panel in front.' };

export const commandsPlugin: JupyterFrontEndPlugin<void> = {
  id: 'gpulayer:commands',
  description: 'Commands on jobs, and panels that show one job.',
  autoStart: true,
  requires: [IGpulayer],
  optional: [ICommandPalette, ILayoutRestorer, ILabShell],
  activate: (
    app: JupyterFrontEnd,
    gpulayer: IGpulayer,
    palette: ICommandPalette | null,
    restorer: ILayoutRestorer | null,
    labShell: ILabShell | null,
  ): void => {
    const { commands, shell } = app;
    const { trans } = gpulayer;
    const tracker = new WidgetTracker<MainAreaWidget<JobPanel>>({ namespace: 'gpulayer-job' });
    gpulayer.openInPanel = jobId => void commands.execute(CommandIDs.openJob, { job_id: jobId });

    /** The job that a command is about; null of none, or of what is no job's id. */
    const jobOf = (args: { [name: string]: unknown }): string | null => {
      const inFront = tracker.currentWidget === shell.currentWidget ? tracker.currentWidget?.content.jobId : undefined;
      const jobId = args['job_id'] ?? inFront;
      return isJobId(jobId) ? jobId : null;
    };

    commands.addCommand(CommandIDs.openJob, {
      label: trans.__('Open the job in a panel'),
      describedBy: { args: { type: 'object', properties: { job_id: JOB_ID_ARGUMENT }, additionalProperties: false } },
      isEnabled: args => jobOf(args) !== null,
      execute: async args => {
        const jobId = jobOf(args);
        if (jobId === null) {
          return;
        }
        let widget = tracker.find(open => open.content.jobId === jobId);
        if (widget === undefined) {
          widget = new MainAreaWidget({ content: new JobPanel(gpulayer, jobId) });
          widget.id = `gpulayer-job-${jobId}`;
          widget.title.icon = gpulayerIcon;
          widget.title.closable = true;
          await tracker.add(widget);
          // Notebook 7 shows one main widget only; there a job opens at the side.
          shell.add(widget, labShell === null ? 'right' : 'main', labShell === null ? {} : { mode: 'split-right' });
        }
        shell.activateById(widget.id);
      },
    });

    commands.addCommand(CommandIDs.cancelJob, {
      label: trans.__('Stop the job'),
      describedBy: {
        args: {
          type: 'object',
          properties: {
            job_id: JOB_ID_ARGUMENT,
            name: { type: ['string', 'null'], description: 'Its name, for the question.' },
            force: { type: 'boolean', description: 'Without grace: killed at once.' },
          },
          additionalProperties: false,
        },
      },
      isEnabled: args => jobOf(args) !== null,
      execute: async args => {
        const jobId = jobOf(args);
        if (jobId === null) {
          return;
        }
        const name = typeof args['name'] === 'string' ? args['name'] : jobId;
        const stop = Dialog.warnButton({ label: trans.__('Stop') });
        const answer = await showDialog({
          title: trans.__('Stop %1?', name),
          body: trans.__('Its ranks are interrupted, and killed after their grace.'),
          buttons: [Dialog.cancelButton({ label: trans.__('Keep it') }), stop],
          defaultButton: 1,
        });
        if (!answer.button.accept) {
          return;
        }
        try {
          await cancelJob(gpulayer.settings, jobId, args['force'] === true);
        } catch (error) {
          if (!(error instanceof RequestError)) {
            throw error;
          }
          const { message, fix } = error.details;
          await showErrorMessage(trans.__('The job was not stopped'), fix === null ? message : `${message} ${fix}`);
        }
      },
    });

    commands.addCommand(CommandIDs.showJobs, {
      label: trans.__('Show jobs'),
      describedBy: { args: { type: 'object', properties: {}, additionalProperties: false } },
      execute: () => shell.activateById(SIDEBAR_ID),
    });

    for (const command of Object.values(CommandIDs)) {
      palette?.addItem({ command, category: 'GPUlayer' });
    }
    if (restorer !== null) {
      void restorer.restore(tracker, {
        command: CommandIDs.openJob,
        args: widget => ({ job_id: widget.content.jobId }),
        name: widget => widget.content.jobId,
      });
    }
  },
};

/** One job in a panel of its own. */
class JobPanel extends Widget {
  constructor(
    gpulayer: IGpulayer,
    readonly jobId: string,
  ) {
    super();
    this.addClass('jp-gpulayer-job-panel');
    // What a panel shows does not count among the outputs: the kernel writes its own as if nobody looked.
    const source = gpulayer.sources.get(jobId, { trans: gpulayer.trans });
    const { trans } = gpulayer;
    this.title.label = jobId;
    this.title.caption = trans.__('Job %1', jobId);
    this.view = new JobView(source, { now: gpulayer.stream.now });
    this.node.append(this.view.node);
    const record = source.job(
      status => (this.title.label = status.name),
      () => undefined, // the view says so
    );
    this.disposed.connect(() => record.dispose());
  }

  override dispose(): void {
    if (!this.isDisposed) {
      this.view.dispose();
      super.dispose();
    }
  }

  protected override onActivateRequest(message: Message): void {
    super.onActivateRequest(message);
    this.node.tabIndex = -1;
    this.node.focus();
  }

  private readonly view: JobView;
}
