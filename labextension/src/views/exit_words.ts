/** How a rank ended, in the words of the command line (gpulayer/cli/job_show.py). */
import type { RankOutcome } from '../protocol';
import type { Translator } from './source';

// Linux's numbers where the systems differ: a rank on another one has few of these.
const SIGNALS: Record<number, string> = {
  1: 'SIGHUP',
  2: 'SIGINT',
  3: 'SIGQUIT',
  4: 'SIGILL',
  5: 'SIGTRAP',
  6: 'SIGABRT',
  7: 'SIGBUS',
  8: 'SIGFPE',
  9: 'SIGKILL',
  10: 'SIGUSR1',
  11: 'SIGSEGV',
  12: 'SIGUSR2',
  13: 'SIGPIPE',
  14: 'SIGALRM',
  15: 'SIGTERM',
  24: 'SIGXCPU',
  25: 'SIGXFSZ',
  31: 'SIGSYS',
};

/** `SIGKILL` for 9; `signal 40` for one without a name. */
export function signalName(number: number): string {
  return SIGNALS[number] ?? `signal ${number}`;
}

/** How a rank's process ended. */
export function outcomeText(rank: RankOutcome, trans: Translator): string {
  let how: string;
  if (rank.signal !== null) {
    how = trans.__('%1 (signal %2)', signalName(rank.signal), rank.signal);
  } else if (rank.exit_code !== null) {
    how = trans.__('exit code %1', rank.exit_code);
  } else {
    how = trans.__('end not seen');
  }
  if (rank.collateral) {
    return trans.__('stopped as another failed: %1', how);
  }
  // Its script is what counts: a crash while the interpreter is taken down does not.
  return rank.returned && rank.exit_code !== 0 ? trans.__('returned, then %1', how) : how;
}
