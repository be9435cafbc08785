/** Names by which the plugins, the palette and the settings know one another. */
export const SETTINGS_ID = 'gpulayer:plugin';

export const SIDEBAR_ID = 'gpulayer-jobs';

export const CommandIDs = {
  openJob: 'gpulayer:open-job',
  cancelJob: 'gpulayer:cancel-job',
  showJobs: 'gpulayer:show-jobs',
} as const;
