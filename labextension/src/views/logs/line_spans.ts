/** One line's text as nodes: its styles, its links, and what the search found in it. User text is never markup. */
import Anser from 'anser';
import { element } from '../elements';
import { backgroundOf, css, namedColour, readable, rgbOf } from './colours';

/** What is drawn of a line; the rest is a click away. */
export const SHOWN_CHARACTERS = 5000;

const LINK = /\bhttps?:\/\/[^\s<>"'`]+/g;
/** What ends a sentence or a bracket rather than an address. */
const NOT_OF_LINK = /[.,;:!?)\]}'"*]+$/;
/** Where a worker has a job's program. What is in front of the program's own path says nothing to who wrote it. */
const WORKSPACE = /(?:(?<=")\/[^"]*|(?:\/[^\s/"'()]+)*)\/workspaces\/[^\s/"'()]+\/[^\s/"'()]+\/source\//g;
const PATH_END = /[\s"'():,]|$/g;
const CLASSES = {
  bold: 'bold',
  dim: 'dim',
  italic: 'italic',
  underline: 'underline',
  strikethrough: 'strike',
} as const;

/** The page's own colours, which what programs choose must be readable on. */
export interface Ground {
  background: readonly [number, number, number];
  text: readonly [number, number, number];
}

export function groundOf(node: Element): Ground {
  const background = backgroundOf(node);
  return { background, text: rgbOf(getComputedStyle(node).color) ?? readable(background, background) };
}

interface Stretch {
  text: string;
  style: Anser.AnserJsonEntry | null;
}

/** The nodes of a line, cut to what is shown. */
export function spansOf(text: string, pattern: RegExp | null, ground: Ground): Node[] {
  const stretches = cut(stretchesOf(text));
  const plain = stretches.map(stretch => stretch.text).join('');
  const marks = pattern ? placesOf(pattern, plain) : [];
  const links = plain.includes('://') ? placesOf(LINK, plain).map(place => trimmed(plain, place)) : [];
  const folded = plain.includes('/workspaces/')
    ? placesOf(WORKSPACE, plain).filter(
        ([from, to]) => ![...marks, ...links].some(([start, stop]) => start < to && stop > from),
      )
    : [];
  const nodes: Node[] = [];
  let at = 0;
  for (const { text: part, style } of stretches) {
    const end = at + part.length;
    for (const piece of pieces(at, end, [...links, ...folded])) {
      const [from, to] = piece;
      const inner = pieces(from, to, marks).map(([start, stop]) => {
        const shown = plain.slice(start, stop);
        return covers(marks, start) ? element('mark', {}, shown) : document.createTextNode(shown);
      });
      const link = links.find(([start, stop]) => start <= from && from < stop);
      if (covers(folded, from)) {
        nodes.push(...styled([foldedPath(plain, from, to)], style, ground));
        continue;
      }
      nodes.push(...styled(link ? [linkTo(plain.slice(...link), inner)] : inner, style, ground));
    }
    at = end;
  }
  return nodes;
}

function stretchesOf(text: string): Stretch[] {
  if (!text.includes('\x1b')) {
    return [{ text, style: null }];
  }
  return Anser.ansiToJson(text, { json: true, use_classes: true, remove_empty: true }).map(entry => ({
    text: entry.content,
    style: entry.was_processed ? entry : null,
  }));
}

function cut(stretches: Stretch[]): Stretch[] {
  let room = SHOWN_CHARACTERS;
  const kept: Stretch[] = [];
  for (const { text, style } of stretches) {
    if (room > 0) {
      kept.push({ text: text.slice(0, room), style });
      room -= text.length;
    }
  }
  return kept;
}

type Place = [from: number, to: number];

function placesOf(pattern: RegExp, text: string): Place[] {
  const found: Place[] = [];
  for (const match of text.matchAll(pattern)) {
    if (match[0] !== '') {
      found.push([match.index, match.index + match[0].length]);
    }
  }
  return found;
}

function trimmed(text: string, [from, to]: Place): Place {
  return [from, to - (NOT_OF_LINK.exec(text.slice(from, to))?.[0].length ?? 0)];
}

function covers(places: readonly Place[], at: number): boolean {
  return places.some(([from, to]) => from <= at && at < to);
}

/** A stretch, divided where others begin and end in it. */
function pieces(from: number, to: number, others: readonly Place[]): Place[] {
  const cuts = new Set([from, to]);
  for (const each of others.flat()) {
    if (each > from && each < to) {
      cuts.add(each);
    }
  }
  const sorted = [...cuts].sort((a, b) => a - b);
  return sorted.slice(1).map((end, index) => [sorted[index] ?? from, end]);
}

/** Its text stays in the page, where selecting and copying find it; the style sheet draws a sign in its place. */
function foldedPath(plain: string, from: number, to: number): Node {
  PATH_END.lastIndex = to;
  const end = PATH_END.exec(plain)?.index ?? plain.length;
  return element('span', { class: 'jp-gpulayer-logs-folded', title: plain.slice(from, end) }, plain.slice(from, to));
}

/** The target is what one reads. */
function linkTo(target: string, children: Node[]): Node {
  return element('a', { href: target, target: '_blank', rel: 'noopener noreferrer' }, ...children);
}

function styled(nodes: Node[], style: Anser.AnserJsonEntry | null, ground: Ground): Node[] {
  if (style === null) {
    return nodes;
  }
  const span = element('span', {}, ...nodes);
  const front = namedColour(style.fg, style.fg_truecolor);
  const back = namedColour(style.bg, style.bg_truecolor);
  for (const decoration of style.decorations) {
    if (decoration in CLASSES) {
      span.classList.add(`jp-gpulayer-logs-${CLASSES[decoration as keyof typeof CLASSES]}`);
    }
  }
  if (back) {
    span.style.backgroundColor = css(back);
  }
  if (front ?? back) {
    span.style.color = css(readable(front ?? ground.text, back ?? ground.background));
  }
  return [span];
}
