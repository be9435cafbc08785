/** How a chart's columns, lines, axes and bands are given to the canvas. Pure. */
import type uPlot from 'uplot';
import { clock, count, value } from '../units';
import type { ChartData, Column } from './chart_data';

const DASHES: (number[] | undefined)[] = [undefined, [6, 3], [2, 3], [8, 3, 2, 3]];
/** Lines that are told apart by name and stroke; of more the names would be a crowd. */
export const KEYS_SHOWN = 8;
export const FONT = '11px system-ui, sans-serif';

/** Lines differ by their strokes too, not by colour alone. Their samples in the key have the same. */
export function dashOf(data: ChartData, index: number): number[] | undefined {
  return data.lines.length > KEYS_SHOWN ? undefined : DASHES[index % DASHES.length];
}

export function columnsOf(data: ChartData, isLog: boolean): uPlot.AlignedData {
  const shown = (column: Column): Column =>
    isLog ? column.map(one => (typeof one === 'number' && one <= 0 ? null : one)) : column;
  return [
    data.xs,
    ...data.lines.map(line => shown(line.values)),
    ...data.bands.flatMap(band => [shown(band.low), shown(band.high)]),
  ];
}

/** A log scale has no place for what is not above zero. */
export function hasPositive(data: ChartData): boolean {
  return data.lines.some(line => line.values.some(one => typeof one === 'number' && one > 0));
}

export function axisText(split: number | null, axis: ChartData['axis']): string {
  if (split === null) {
    return '';
  }
  return axis === 'time'
    ? clock(split)
    : Number.isInteger(split)
      ? Math.abs(split) >= 1e6
        ? value(split, 3)
        : count(split)
      : '';
}

export function yWidth(texts: readonly string[] | null): number {
  return 10 + 6.5 * Math.max(2, ...(texts ?? []).map(text => text?.length ?? 0));
}

/** A colour as a band has it. Computed colours are `rgb(…)` or `color(…)`, and both take an alpha. */
export function faded(colour: string): string {
  const parts = /^(rgba?|color)\((.*?)\)$/.exec(colour);
  const [kind, inner] = [parts?.[1], parts?.[2]];
  if (kind === undefined || inner === undefined) {
    return colour;
  }
  return kind === 'color'
    ? `color(${inner.split('/')[0]} / 0.18)`
    : `rgba(${inner.split(',').slice(0, 3).join(',')}, 0.18)`;
}
