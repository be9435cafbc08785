/** What stopped ranks were doing, as text: those with the same stack share one. */
import type { JobStatus, ThreadStack } from '../protocol';
import { inFunction, mainStack, outcomesOf } from './frame_places';
import type { Translator } from './source';
import { ranges } from './units';

export interface StackGroup {
  /** `Ranks 0, 2, 3`. */
  who: string;
  /** The main thread's frames, the innermost last. */
  text: string;
}

/** The ranks' stacks, the ones of most ranks first. */
export function stackGroups(status: JobStatus, trans: Translator): StackGroup[] {
  const found = new Map<string, number[]>();
  for (const outcome of outcomesOf(status)) {
    const main = mainStack(outcome.stacks);
    if (main !== null) {
      const text = stackText(main, trans);
      found.set(text, [...(found.get(text) ?? []), outcome.rank]);
    }
  }
  return [...found]
    .sort(([, one], [, other]) => other.length - one.length || (one[0] ?? 0) - (other[0] ?? 0))
    .map(([text, ranks]) => ({
      who: ranks.length === 1 ? trans.__('Rank %1', ranges(ranks)) : trans.__('Ranks %1', ranges(ranks)),
      text,
    }));
}

function stackText(stack: ThreadStack, trans: Translator): string {
  const lines = stack.frames.flatMap(frame => [
    inFunction(frame, trans),
    ...(frame.text === null ? [] : [`    ${frame.text}`]),
  ]);
  return lines.length ? lines.join('\n') : trans.__('no line of the script: it was starting or ending');
}
