/** How text of a terminal looks, as SGR sequences change it. The same as `Style` in `gpulayer/terminal_cells.py`. */

const SWITCHES: Record<number, string> = { 1: '1', 2: '2', 3: '3', 4: '4', 7: '7', 9: '9', 21: '4' };
const OFF: Record<number, readonly string[]> = { 22: ['1', '2'], 23: ['3'], 24: ['4'], 27: ['7'], 29: ['9'] };

/** What blinks or hides is shown as the rest is. */
export class Style {
  private readonly on = new Set<string>();
  private foreground = '';
  private background = '';

  /** The parameters that make this style from the default one; "" for that. */
  sgr(): string {
    return [...[...this.on].sort(), this.foreground, this.background].filter(part => part !== '').join(';');
  }

  clear(): void {
    this.on.clear();
    this.foreground = this.background = '';
  }

  apply(parameters: string): void {
    const parts = parameters.split(';');
    let position = 0;
    while (position < parts.length) {
      const fields = (parts[position++] ?? '').split(':');
      const code = numberOf(fields[0]);
      if (code === 38 || code === 48 || code === 58) {
        let colour: string;
        if (fields.length === 1) {
          // The colour follows as parameters of their own.
          const taken = parts[position] === '2' ? 4 : 2;
          colour = colourOf(code, parts.slice(position, position + taken));
          position += taken;
        } else {
          colour = colourOf(
            code,
            fields.slice(1).filter(field => field !== ''),
          );
        }
        this.setColour(code, colour);
      } else if (code === 4 && fields.length > 1 && numberOf(fields[1]) === 0) {
        this.on.delete('4');
      } else {
        this.switch(code);
      }
    }
  }

  private switch(code: number): void {
    const on = SWITCHES[code];
    if (code === 0) {
      this.clear();
    } else if (on !== undefined) {
      this.on.add(on);
    } else if (OFF[code] !== undefined) {
      OFF[code].forEach(part => this.on.delete(part));
    } else if ((code >= 30 && code <= 37) || (code >= 90 && code <= 97)) {
      this.foreground = String(code);
    } else if ((code >= 40 && code <= 47) || (code >= 100 && code <= 107)) {
      this.background = String(code);
    } else if (code === 39) {
      this.foreground = '';
    } else if (code === 49) {
      this.background = '';
    }
  }

  private setColour(code: number, colour: string): void {
    if (colour && code === 38) {
      this.foreground = colour;
    } else if (colour && code === 48) {
      this.background = colour;
    }
  }
}

/** A parameter as a number; 0 for what is none. */
export function numberOf(text: string | undefined): number {
  return text !== undefined && /^\d+$/.test(text) ? Number(text.slice(0, 6)) : 0;
}

/** `5;n` or `2;r;g;b` as SGR parameters; "" where they name no colour. */
function colourOf(code: number, parts: readonly string[]): string {
  const numbers = parts.map(numberOf);
  const [kind = 0, first = 0] = numbers;
  if (numbers.length >= 2 && kind === 5 && first <= 255) {
    return `${code};5;${first}`;
  }
  if (numbers.length >= 4 && kind === 2 && Math.max(...numbers.slice(-3)) <= 255) {
    return `${code};2;${numbers.slice(-3).join(';')}`;
  }
  return '';
}
