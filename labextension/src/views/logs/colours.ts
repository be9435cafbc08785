/** Colours that programs choose, made readable on the page's background: a contrast of 4.5 to 1 at least (WCAG AA). */

type Rgb = readonly [number, number, number];

const READABLE = 4.5;

/** The sixteen of a terminal, between what emulators use; each is moved as far as the background asks for. */
const NAMED: Record<string, Rgb> = {
  black: [0, 0, 0],
  red: [205, 49, 49],
  green: [13, 148, 92],
  yellow: [180, 130, 0],
  blue: [36, 114, 200],
  magenta: [188, 63, 188],
  cyan: [17, 148, 180],
  white: [204, 204, 204],
  'bright-black': [118, 118, 118],
  'bright-red': [241, 76, 76],
  'bright-green': [35, 190, 130],
  'bright-yellow': [220, 180, 30],
  'bright-blue': [59, 142, 234],
  'bright-magenta': [214, 112, 214],
  'bright-cyan': [41, 184, 219],
  'bright-white': [255, 255, 255],
};
const LEVELS = [0, 95, 135, 175, 215, 255];

/** A colour as anser names it: `ansi-red`, `ansi-palette-208`, or `r, g, b` of one of 24 bits. */
export function namedColour(name: string | null, trueColour: string | null): Rgb | null {
  if (name === null) {
    return null;
  }
  if (name === 'ansi-truecolor') {
    return rgbOf(trueColour ?? '');
  }
  const palette = /^ansi-palette-(\d+)$/.exec(name);
  if (palette) {
    const number = Number(palette[1]);
    if (number >= 232) {
      const grey = 8 + (number - 232) * 10;
      return [grey, grey, grey];
    }
    const level = (place: number): number => LEVELS[Math.floor((number - 16) / place) % 6] ?? 0;
    return [level(36), level(6), level(1)];
  }
  return NAMED[name.replace(/^ansi-/, '')] ?? null;
}

/** A computed colour; null where it is transparent or written another way. */
export function rgbOf(text: string): Rgb | null {
  const numbers = text.match(/[\d.]+/g)?.map(Number) ?? [];
  const [red, green, blue, alpha = 1] = numbers;
  if (red === undefined || green === undefined || blue === undefined || alpha < 0.5 || /^(?!rgb|\d)/.test(text)) {
    return null;
  }
  return [red, green, blue];
}

/** The colour that an element stands on. */
export function backgroundOf(element: Element): Rgb {
  for (let at: Element | null = element; at; at = at.parentElement) {
    const colour = rgbOf(getComputedStyle(at).backgroundColor);
    if (colour) {
      return colour;
    }
  }
  return [255, 255, 255];
}

export function contrast(one: Rgb, other: Rgb): number {
  const [bright, dark] = [luminance(one), luminance(other)].sort((a, b) => b - a) as [number, number];
  return (bright + 0.05) / (dark + 0.05);
}

/** The colour itself, or as much nearer to white or black as it takes to read it. */
export function readable(colour: Rgb, background: Rgb): Rgb {
  if (contrast(colour, background) >= READABLE) {
    return colour;
  }
  const target: Rgb =
    contrast([255, 255, 255], background) >= contrast([0, 0, 0], background) ? [255, 255, 255] : [0, 0, 0];
  for (let share = 0.1; share < 1; share += 0.1) {
    const mixed = colour.map((part, index) =>
      Math.round(part + ((target[index] ?? 0) - part) * share),
    ) as unknown as Rgb;
    if (contrast(mixed, background) >= READABLE) {
      return mixed;
    }
  }
  return target;
}

export function css(colour: Rgb): string {
  return `rgb(${colour.join(', ')})`;
}

function luminance(colour: Rgb): number {
  const [red, green, blue] = colour.map(part => {
    const share = part / 255;
    return share <= 0.03928 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
  }) as [number, number, number];
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
}
