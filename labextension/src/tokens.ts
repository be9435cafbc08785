/** What the plugins of this extension give one another. */
import { Token } from '@lumino/coreutils';
import type { ServerConnection } from '@jupyterlab/services';
import type { TranslationBundle } from '@jupyterlab/translation';
import type { JobSources, ShownSource, SourceOptions } from './model';
import type { Stream } from './stream';

export interface IGpulayer {
  readonly stream: Stream;
  readonly settings: ServerConnection.ISettings;
  readonly sources: JobSources;
  readonly trans: TranslationBundle;
  /** A job as a view wants it, with what this front end offers. */
  source(jobId: string, options?: Pick<SourceOptions, 'shows'>): ShownSource;
  /** Set by the plugin that can open panels. */
  openInPanel: ((jobId: string) => void) | null;
}

export const IGpulayer = new Token<IGpulayer>(
  'gpulayer:IGpulayer',
  'The tab’s stream of GPUlayer, and the jobs on it.',
);
