/** How numbers, times and sizes are written, the same in every view. Knows no view and no DOM. */

const THIN_SPACE = '\u2009';

/** A time that goes on, as a clock shows it: `0:42`, `1:02:03`. */
export function clock(seconds: number): string {
  const whole = Math.max(0, Math.floor(seconds));
  const minutes = Math.floor(whole / 60);
  const rest = String(whole % 60).padStart(2, '0');
  if (minutes < 60) {
    return `${minutes}:${rest}`;
  }
  return `${Math.floor(minutes / 60)}:${String(minutes % 60).padStart(2, '0')}:${rest}`;
}

/** A step's time in the unit in which it is read: `0.8 ms`, `43 ms`, `2.41 s`, `125 s`. */
export function duration(seconds: number): string {
  if (seconds < 0.9995) {
    return `${(seconds * 1000).toFixed(seconds < 0.00995 ? 1 : 0)} ms`;
  }
  return `${grouped(seconds.toFixed(seconds < 99.995 ? 2 : 0))} s`;
}

/** How long something took that is over: `0.4 s`, `12 s`, then as a clock shows it. */
export function took(seconds: number): string {
  const known = Math.max(0, seconds);
  if (known < 9.95) {
    return `${known.toFixed(known < 0.095 ? 2 : 1)} s`;
  }
  return known < 59.5 ? `${Math.round(known)} s` : clock(Math.round(known));
}

/** When something was, by this browser's clock and zone: `14:03:22`, of another day `29 Nov 14:03`. */
export function moment(seconds: number, now: number): string {
  const then = new Date(seconds * 1000);
  const [hour, minute, second] = [then.getHours(), then.getMinutes(), then.getSeconds()].map(part =>
    String(part).padStart(2, '0'),
  );
  return then.toDateString() === new Date(now * 1000).toDateString()
    ? `${hour}:${minute}:${second}`
    : `${then.toLocaleDateString(undefined, { day: 'numeric', month: 'short' })} ${hour}:${minute}`;
}

/** How long ago, roughly: `8 s`, `12 min`, `3 h`, `2 d`. */
export function age(seconds: number): string {
  const known = Math.max(0, seconds);
  for (const [size, unit] of [
    [86400, 'd'],
    [3600, 'h'],
    [60, 'min'],
  ] as const) {
    if (known >= size) {
      return `${Math.round(known / size)} ${unit}`;
    }
  }
  return `${Math.round(known)} s`;
}

/** A whole number, thousands apart by a thin space: `1 204`. */
export function count(number: number): string {
  return grouped(String(Math.round(number)));
}

/** `812 B`, `1.5 kB`, `20 MB`. */
export function bytes(size: number): string {
  let left = size;
  for (const unit of ['B', 'kB', 'MB']) {
    if (left < 999.5) {
      return `${unit === 'B' ? left : Number(left.toPrecision(3))} ${unit}`;
    }
    left /= 1000;
  }
  return `${grouped(String(Number(left.toPrecision(3))))} GB`;
}

/** A measured value in as many digits as a person compares: `0.1312`, `1 250`, `3.2e-5`. */
export function value(number: number, digits = 4): string {
  if (!Number.isFinite(number)) {
    return Number.isNaN(number) ? 'NaN' : number > 0 ? '∞' : '−∞';
  }
  const size = Math.abs(number);
  if (size !== 0 && (size < 1e-3 || size >= 1e9)) {
    return number
      .toExponential(digits - 1)
      .replace(/\.?0+e/, 'e')
      .replace('e+', 'e')
      .replace(/-/g, '−');
  }
  if (Number.isInteger(number)) {
    return count(number).replace('-', '−');
  }
  const text = size >= 10 ** digits ? number.toFixed(0) : String(Number(number.toPrecision(digits)));
  return grouped(text).replace('-', '−');
}

/** Numbers in ascending order, three or more in a row as `1–3`; of very many the first. */
export function ranges(numbers: readonly number[]): string {
  const runs: [number, number][] = [];
  for (const number of numbers) {
    const last = runs[runs.length - 1];
    if (last && number === last[1] + 1) {
      last[1] = number;
    } else {
      runs.push([number, number]);
    }
  }
  const parts = runs.flatMap(([from, to]) =>
    to - from > 1 ? [`${from}–${to}`] : from === to ? [String(from)] : [String(from), String(to)],
  );
  const more = parts.length > RANGES_NAMED ? ` … (${numbers.length} in all)` : '';
  return parts.slice(0, RANGES_NAMED).join(', ') + more;
}

const RANGES_NAMED = 16;

function grouped(text: string): string {
  const [whole = '', part] = text.split('.');
  const apart = whole.replace(/\B(?=(\d{3})+(?!\d))/g, THIN_SPACE);
  return part === undefined ? apart : `${apart}.${part}`;
}
