/** The plugins of the extension, in the order in which they need one another. Runs in the browser. */
import type { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { INotebookTracker } from '@jupyterlab/notebook';
import { IRenderMimeRegistry } from '@jupyterlab/rendermime';
import { ITranslator, nullTranslator } from '@jupyterlab/translation';
import { keepAcceptances } from './acceptances';
import { commandsPlugin } from './commands';
import { jobRendererFactory } from './mime';
import { JobSources } from './model';
import { sidebarPlugin } from './panel';
import { Stream } from './stream';
import { IGpulayer } from './tokens';
import { JobView } from './views/job_view';

const streamPlugin: JupyterFrontEndPlugin<IGpulayer> = {
  id: 'gpulayer:stream',
  description: 'One stream from the Jupyter server for all that this tab follows.',
  autoStart: true,
  provides: IGpulayer,
  optional: [ITranslator],
  activate: (app: JupyterFrontEnd, translator: ITranslator | null): IGpulayer => {
    const settings = app.serviceManager.serverSettings;
    const stream = new Stream({ settings, page: document });
    const sources = new JobSources(stream, settings);
    const trans = (translator ?? nullTranslator).load('gpulayer');
    const gpulayer: IGpulayer = {
      stream,
      settings,
      sources,
      trans,
      openInPanel: null,
      source: (jobId, options = {}) => {
        const open = gpulayer.openInPanel;
        return sources.get(jobId, { trans, ...options, ...(open === null ? {} : { openInPanel: () => open(jobId) }) });
      },
    };
    return gpulayer;
  },
};

const mimePlugin: JupyterFrontEndPlugin<void> = {
  id: 'gpulayer:output',
  description: 'Draws a job under its cell.',
  autoStart: true,
  requires: [IGpulayer, IRenderMimeRegistry],
  activate: (_app: JupyterFrontEnd, gpulayer: IGpulayer, registry: IRenderMimeRegistry): void => {
    registry.addFactory(
      jobRendererFactory({
        trans: gpulayer.trans,
        source: jobId => gpulayer.source(jobId, { shows: true }),
        draw: source => new JobView(source, { now: gpulayer.stream.now }),
      }),
    );
  },
};

const acceptancesPlugin: JupyterFrontEndPlugin<void> = {
  id: 'gpulayer:acceptances',
  description: 'Keeps in a cell’s metadata which side effects were accepted for its job.',
  autoStart: true,
  requires: [INotebookTracker],
  activate: (_app: JupyterFrontEnd, tracker: INotebookTracker): void => keepAcceptances(tracker),
};

export default [streamPlugin, mimePlugin, commandsPlugin, sidebarPlugin, acceptancesPlugin];
