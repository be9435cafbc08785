/**
 * The renderer of a job's output under its cell. It takes a job's id from the output and nothing else: a notebook is hostile
 * input. Until the job's record is here, and where nobody knows the job, the output's own text stands there.
 */
import type { IRenderMime } from '@jupyterlab/rendermime-interfaces';
import type { Message } from '@lumino/messaging';
import { Widget } from '@lumino/widgets';
import type { StreamError } from './protocol';
import type { Connection, JobSource, Subscription, Translator } from './views/source';
import { isJobId } from './model';
import type { ShownSource } from './model';

export const JOB_MIME_TYPE = 'application/vnd.gpulayer.job.v1+json';

/** Below this, JupyterLab's widget view (−10) would not be beaten; a lower rank is preferred. */
const RANK = -20;
/** An output that is moved is detached and attached again: its claim lasts across that. */
const CLAIM_MS = 3_000;

/** What draws a job; `views/job_view.ts` has it. */
export interface DrawnJob {
  readonly node: HTMLElement;
  dispose(): void;
}

export interface RendererOptions {
  trans: Translator;
  source(jobId: string): ShownSource;
  draw(source: JobSource): DrawnJob;
}

export function jobRendererFactory(options: RendererOptions): IRenderMime.IRendererFactory {
  return {
    safe: true,
    mimeTypes: [JOB_MIME_TYPE],
    defaultRank: RANK,
    createRenderer: () => new JobRenderer(options),
  };
}

/** One output. */
export class JobRenderer extends Widget implements IRenderMime.IRenderer {
  constructor(private readonly options: RendererOptions) {
    super();
    this.addClass('jp-gpulayer-rendered');
  }

  /** Called again when the output is rewritten: of the same job, the view stays as it is. */
  renderModel(model: IRenderMime.IMimeModel): Promise<void> {
    const jobId = jobIdOf(model.data[JOB_MIME_TYPE]);
    this.text = textOf(model.data['text/plain']);
    if (jobId !== null && jobId === this.source?.jobId) {
      if (this.drawn === null) {
        this.showText(this.note);
      }
      return Promise.resolve();
    }
    this.forgetJob();
    if (jobId === null) {
      this.showText(this.options.trans.__('This output names no job of GPUlayer.'));
    } else {
      this.follow(jobId);
    }
    return Promise.resolve();
  }

  override dispose(): void {
    if (!this.isDisposed) {
      clearTimeout(this.claimTimer);
      this.forgetJob();
      super.dispose();
    }
  }

  protected override onAfterAttach(message: Message): void {
    super.onAfterAttach(message);
    clearTimeout(this.claimTimer);
    this.source?.setShows(true);
  }

  // A notebook that scrolls a cell out of sight only hides it: no message comes, and the claim stays.
  protected override onBeforeDetach(message: Message): void {
    clearTimeout(this.claimTimer);
    this.claimTimer = setTimeout(() => this.source?.setShows(false), CLAIM_MS);
    super.onBeforeDetach(message);
  }

  private follow(jobId: string): void {
    const source = this.options.source(jobId);
    this.source = source;
    this.showText('');
    this.following = source.job(
      () => this.draw(source),
      error => this.giveUp(error),
    );
    this.connecting = source.connection.onChange(() => this.showConnection(source.connection));
    this.showConnection(source.connection);
  }

  private draw(source: JobSource): void {
    if (this.drawn === null) {
      this.drawn = this.options.draw(source);
      this.note = '';
      this.node.replaceChildren(this.drawn.node);
    }
  }

  private giveUp(error: StreamError): void {
    const { trans } = this.options;
    const isUnknown = error.status === 404 || error.code === 'unknown_job';
    const note = isUnknown
      ? trans.__('This is what was saved: the server here does not know the job.')
      : trans.__('This is what was saved: %1', [error.message, error.fix].filter(Boolean).join(' '));
    this.endView();
    this.showText(note);
  }

  private showConnection(connection: Connection): void {
    if (this.drawn === null && this.following !== null) {
      const isOffline = connection.state === 'offline';
      this.showText(isOffline ? this.options.trans.__('This is what was saved: the server cannot be reached.') : '');
    }
  }

  private showText(note: string): void {
    this.note = note;
    const text = document.createElement('pre');
    text.textContent = this.text ?? (note === '' ? this.options.trans.__('A job of GPUlayer.') : '');
    const parts: HTMLElement[] = text.textContent === '' ? [] : [text];
    if (note !== '') {
      const said = document.createElement('p');
      said.className = 'jp-gpulayer-note';
      said.textContent = note;
      parts.push(said);
    }
    this.node.replaceChildren(...parts);
  }

  private forgetJob(): void {
    this.endView();
    this.source = null;
  }

  private endView(): void {
    this.following?.dispose();
    this.connecting?.dispose();
    this.drawn?.dispose();
    this.following = this.connecting = this.drawn = null;
  }

  private source: ShownSource | null = null;
  private following: Subscription | null = null;
  private connecting: Subscription | null = null;
  private drawn: DrawnJob | null = null;
  private text: string | null = null;
  private note = '';
  private claimTimer: ReturnType<typeof setTimeout> | undefined;
}

/** The job that an output names; null of anything that is not exactly that. */
export function jobIdOf(data: unknown): string | null {
  if (typeof data !== 'object' || data === null || Array.isArray(data)) {
    return null;
  }
  const id = Object.prototype.hasOwnProperty.call(data, 'job_id') ? (data as { job_id: unknown }).job_id : null;
  return isJobId(id) ? id : null;
}

function textOf(data: unknown): string | null {
  if (Array.isArray(data)) {
    return data.filter(line => typeof line === 'string').join('');
  }
  return typeof data === 'string' ? data : null;
}
