/** The source that travelled with the job, file by file, as text: the script that the ranks run first, what GPUlayer wrote beside it last. */
import type { JobSource as SourceFiles, SourceFile } from '../protocol';
import { copyButton } from './copying';
import { button, element, setText } from './elements';
import { errorText } from './header';
import type { JobSource, Translator } from './source';
import { bytes, count } from './units';

const MANIFEST = 'manifest.json';

export class Program {
  readonly node = element('div', { class: 'jp-gpulayer-program' });
  private readonly trans: Translator;
  private readonly readSource: () => Promise<SourceFiles>;
  private readonly onRead: (words: string | null) => void;
  private readonly list: HTMLElement;
  private readonly bar = element('div', { class: 'jp-gpulayer-program-bar' });
  private readonly code: HTMLElement;
  private readonly note = element('p', { class: 'jp-gpulayer-note', role: 'status' });
  private files: SourceFile[] = [];
  private shown: SourceFile | null = null;
  private wanted: { path: string; line: number } | null = null;
  private reads = false;

  /**
   * @param onRead - told once what the source is made of: `3 cells, 2 modules`.
   */
  constructor(source: Pick<JobSource, 'trans' | 'readSource'>, onRead: (words: string | null) => void) {
    const { trans } = source;
    this.trans = trans;
    this.readSource = () => source.readSource();
    this.onRead = onRead;
    this.list = element('div', { class: 'jp-gpulayer-files', role: 'group', 'aria-label': trans.__('Files') });
    this.code = element('div', {
      class: 'jp-gpulayer-code',
      tabindex: 0,
      role: 'region',
      'aria-label': trans.__('Source'),
    });
    this.node.append(this.note, this.list, this.bar, this.code);
  }

  /** Read the source, once; again only where it failed before. */
  async read(): Promise<void> {
    const trans = this.trans;
    if (this.reads) {
      return;
    }
    this.reads = true;
    this.note.textContent = trans.__('Reading the source…');
    try {
      this.take(await this.readSource());
    } catch (error) {
      this.reads = false;
      this.note.replaceChildren(
        errorText(error),
        ' ',
        button(trans.__('Try again'), () => void this.read()),
      );
    }
  }

  /** Show a line, when the source is there. */
  show(path: string, line: number): void {
    this.wanted = { path, line };
    const file = this.files.find(one => one.path === path);
    if (file) {
      this.showFile(file);
    }
  }

  private take(found: SourceFiles): void {
    const trans = this.trans;
    this.files = [...found.files].sort((one, other) => weight(one, found.script) - weight(other, found.script));
    this.onRead(summary(found, trans));
    const more = found.more_files
      ? trans._n('%1 more file travels with the job', '%1 more files travel with the job', found.more_files)
      : '';
    setText(this.note, this.files.length ? more : trans.__('No source travelled with this job.'));
    this.note.hidden = !this.note.textContent;
    this.list.replaceChildren(
      ...this.files.map(file =>
        button(file.path, () => this.showFile(file), {
          class: 'jp-gpulayer-button jp-gpulayer-file',
          'aria-pressed': 'false',
        }),
      ),
    );
    this.list.hidden = this.files.length < 2;
    const first = this.files.find(file => file.path === this.wanted?.path) ?? this.files[0];
    if (first) {
      this.showFile(first);
    }
  }

  private showFile(file: SourceFile): void {
    const trans = this.trans;
    const text = file.text;
    [...this.list.children].forEach((one, index) =>
      one.setAttribute('aria-pressed', String(this.files[index] === file)),
    );
    if (this.shown !== file) {
      this.shown = file;
      const lines = text === null ? 0 : lineCount(text);
      const facts = [file.path, bytes(file.size_bytes), text === null ? null : trans._n('%1 line', '%1 lines', lines)];
      this.bar.replaceChildren(
        element('span', { class: 'jp-gpulayer-note' }, facts.filter(Boolean).join(' · ')),
        ...(text === null ? [] : [copyButton(() => text, trans.__('Copy %1', file.path), trans)]),
      );
      this.code.replaceChildren(
        ...(text === null
          ? [element('p', { class: 'jp-gpulayer-note' }, trans.__('No text, or too large to be shown here.'))]
          : codeOf(text, lines)),
      );
      this.code.scrollTop = 0;
    }
    this.markLine(file);
  }

  private markLine(file: SourceFile): void {
    this.code.querySelector('.jp-gpulayer-marked-line')?.remove();
    const wanted = this.wanted;
    this.wanted = null;
    if (wanted?.path !== file.path || file.text === null) {
      return;
    }
    const place = element('div', { class: 'jp-gpulayer-marked-line' });
    place.style.setProperty('--gpulayer-line', String(wanted.line - 1));
    this.code.append(place);
    // In its box; the page moves no further than to show the box.
    this.code.scrollTop = place.offsetTop - this.code.clientHeight / 2;
    this.code.scrollIntoView({ block: 'nearest' });
    this.code.focus({ preventScroll: true });
  }
}

/** Two texts beside each other, whatever the number of lines is: an element a line would be slow for long files. */
function codeOf(text: string, lines: number): HTMLElement[] {
  const numbers = Array.from({ length: lines }, (_, index) => index + 1).join('\n');
  return [
    element('pre', { class: 'jp-gpulayer-line-numbers', 'aria-hidden': 'true' }, numbers),
    element('pre', { class: 'jp-gpulayer-code-text' }, text),
  ];
}

function lineCount(text: string): number {
  return text.split('\n').length - (text.endsWith('\n') ? 1 : 0);
}

function weight(file: SourceFile, script: string | null): number {
  if (file.path === script) {
    return 0;
  }
  if (file.path === 'cell.py' || file.path === 'gpulayer_cell.py') {
    return 1;
  }
  return file.path === MANIFEST ? 3 : 2;
}

interface Manifest {
  cells?: unknown[];
  modules?: unknown[];
}

/** `3 cells, 2 modules` of what a notebook exported, else `4 files`. */
function summary(found: SourceFiles, trans: Translator): string | null {
  const text = found.files.find(file => file.path === MANIFEST)?.text;
  const all = found.files.length + found.more_files;
  if (!all) {
    return null;
  }
  try {
    const manifest = JSON.parse(text ?? 'null') as Manifest | null;
    if (Array.isArray(manifest?.cells)) {
      const modules = Array.isArray(manifest.modules) ? manifest.modules.length : 0;
      const cells = trans._n('%1 cell', '%1 cells', manifest.cells.length);
      return modules ? `${cells}, ${trans._n('%1 module', '%1 modules', modules)}` : cells;
    }
  } catch {
    // A file of the user's that happens to have this name: it says nothing of cells.
  }
  return trans._n('%1 file', '%1 files', all).replace(String(all), count(all));
}
