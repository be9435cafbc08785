/** The marks of states: one shape each, so that colour is never all that tells them apart. */
import type { JobStatus, JobSummary } from '../protocol';
import { svg } from './elements';
import type { Translator } from './source';

/** Where a job stands, as a person sees it. */
export type Phase = 'queued' | 'starting' | 'running' | 'stopping' | 'succeeded' | 'failed' | 'cancelled';

/** A job that was told to stop is stopping until it has ended, whatever it was before. */
export function phaseOf(
  job: Pick<JobStatus | JobSummary, 'state' | 'cancel_requested'>,
  waitingReason?: string,
): Phase {
  if (job.state === 'queued' || job.state === 'running') {
    if (job.cancel_requested) {
      return 'stopping';
    }
    return job.state === 'queued' && waitingReason === 'starting' ? 'starting' : job.state;
  }
  return job.state;
}

export function phaseWord(phase: Phase, trans: Translator): string {
  switch (phase) {
    case 'queued':
      return trans.__('queued');
    case 'starting':
      return trans.__('starting');
    case 'running':
      return trans.__('running');
    case 'stopping':
      return trans.__('stopping');
    case 'succeeded':
      return trans.__('succeeded');
    case 'failed':
      return trans.__('failed');
    case 'cancelled':
      return trans.__('cancelled');
  }
}

/** The mark of a phase. It says nothing aloud: the word stands beside it. */
export function stateMark(phase: Phase): SVGElement {
  return svg(
    'svg',
    {
      class: `jp-gpulayer-mark jp-gpulayer-mark-${phase}`,
      viewBox: '0 0 12 12',
      width: 12,
      height: 12,
      'aria-hidden': 'true',
    },
    ...SHAPES[phase](),
  );
}

const line = (d: string, width = 2): SVGElement =>
  svg('path', {
    d,
    fill: 'none',
    stroke: 'currentColor',
    'stroke-width': width,
    'stroke-linecap': 'round',
    'stroke-linejoin': 'round',
  });
const ring = (extra: Record<string, string | number> = {}): SVGElement =>
  svg('circle', { cx: 6, cy: 6, r: 4.5, fill: 'none', stroke: 'currentColor', 'stroke-width': 2, ...extra });

const SHAPES: Record<Phase, () => SVGElement[]> = {
  queued: () => [ring({ 'stroke-width': 1.5 }), line('M6 3.4v2.8l1.8 1.1', 1.3)],
  starting: () => [
    ring({ 'stroke-width': 1.5, 'stroke-dasharray': '2 2.7' }),
    svg('circle', { cx: 6, cy: 6, r: 1.5, fill: 'currentColor' }),
  ],
  running: () => [ring({ 'stroke-dasharray': '18 10.3', class: 'jp-gpulayer-turning' })],
  stopping: () => [
    ring({ 'stroke-width': 1.5 }),
    svg('rect', { x: 4, y: 4, width: 4, height: 4, fill: 'currentColor' }),
  ],
  succeeded: () => [line('M2 6.5l2.8 2.8L10 3.2')],
  failed: () => [line('M2.8 2.8l6.4 6.4M9.2 2.8L2.8 9.2')],
  cancelled: () => [svg('rect', { x: 2.5, y: 2.5, width: 7, height: 7, fill: 'currentColor' })],
};
