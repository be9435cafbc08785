/** The sidebar: jobs with their state, live, with Stop; and a note when a long job has ended. */
import { ILayoutRestorer } from '@jupyterlab/application';
import type { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { ISettingRegistry } from '@jupyterlab/settingregistry';
import { SETTINGS_ID, SIDEBAR_ID } from './command_ids';
import { EndNotes } from './end_notes';
import { gpulayerIcon } from './icon';
import { JobList } from './sidebar/job_list';
import { JobsSidebar } from './sidebar/jobs_sidebar';
import { IGpulayer } from './tokens';

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
