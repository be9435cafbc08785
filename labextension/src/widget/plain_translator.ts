/** Texts as they are written, where no front end translates them. Placeholders are JupyterLab's: `%1`, and `%%` for a `%`. */
import type { Translator } from '../views/source';

export const plainTranslator: Translator = {
  __: (text, ...args) => filled(text, args),
  _n: (singular, plural, n, ...args) => filled(n === 1 ? singular : plural, [n, ...args]),
};

function filled(text: string, args: (string | number)[]): string {
  return text.replace(/%(%|\d+)/g, (_whole, place: string) =>
    place === '%' ? '%' : String(args[Number(place) - 1] ?? ''),
  );
}
