/** The widget of the sidebar: follows the jobs while it is seen, and opens and stops them by commands. */
import type { CommandRegistry } from '@lumino/commands';
import type { Message } from '@lumino/messaging';
import { Widget } from '@lumino/widgets';
import { CommandIDs, SIDEBAR_ID } from '../command_ids';
import type { IGpulayer } from '../tokens';
import type { JobList } from './job_list';
import { JobsView } from './jobs_view';

export class JobsSidebar extends Widget {
  constructor(
    private readonly list: JobList,
    gpulayer: Pick<IGpulayer, 'stream' | 'trans'>,
    commands: Pick<CommandRegistry, 'execute'>,
  ) {
    super();
    const { stream, trans } = gpulayer;
    this.id = SIDEBAR_ID;
    this.addClass('jp-gpulayer-sidebar');
    this.title.caption = trans.__('GPUlayer jobs');
    this.node.setAttribute('role', 'region');
    this.node.setAttribute('aria-label', trans.__('GPUlayer jobs'));
    this.view = new JobsView({
      list,
      connection: stream,
      trans,
      now: stream.now,
      actions: {
        open: jobId => void commands.execute(CommandIDs.openJob, { job_id: jobId }),
        cancel: jobId =>
          void commands.execute(CommandIDs.cancelJob, { job_id: jobId, name: list.get(jobId)?.name ?? null }),
      },
    });
    this.node.append(this.view.node);
  }

  /** Whether jobs are followed while the sidebar is closed, too. */
  setWatches(watches: boolean): void {
    this.watches = watches;
    this.list.follow(this.isVisible || watches);
  }

  override dispose(): void {
    if (!this.isDisposed) {
      this.list.follow(false);
      this.view.dispose();
      super.dispose();
    }
  }

  protected override onAfterShow(message: Message): void {
    super.onAfterShow(message);
    this.see(true);
  }

  protected override onAfterAttach(message: Message): void {
    super.onAfterAttach(message);
    this.see(this.isVisible);
  }

  protected override onAfterHide(message: Message): void {
    super.onAfterHide(message);
    this.see(false);
  }

  protected override onBeforeDetach(message: Message): void {
    this.see(false);
    super.onBeforeDetach(message);
  }

  protected override onActivateRequest(message: Message): void {
    super.onActivateRequest(message);
    this.view.focus();
  }

  private see(isVisible: boolean): void {
    this.view.isVisible = isVisible;
    this.list.follow(isVisible || this.watches);
  }

  private readonly view: JobsView;
  private watches = false;
}
