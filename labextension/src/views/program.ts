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
  private readonly _trans: Translator;
  private readonly _readSource: () => Promise<SourceFiles>;
  private readonly _onRead: (words: string | null) => void;
  private readonly _list: HTMLElement;
  private readonly _bar = element('div', { class: 'jp-gpulayer-program-bar' });
  private readonly _code: HTMLElement;
  private readonly _note = element('p', { class: 'jp-gpulayer-note', role: 'status' });
  private _files: SourceFile[] = [];
  private _shown: SourceFile | null = null;
  private _wanted: { path: string; line: number } | null = null;
  private _reads = false;

  /**
   * @param onRead - told once what the source is made of: `3 cells, 2 modules`.
   */
  constructor(source: Pick<JobSource, 'trans' | 'readSource'>, onRead: (words: string | null) => void) {
    const { trans } = source;
    this._trans = trans;
    this._readSource = () => source.readSource();
    this._onRead = onRead;
    this._list = element('div', { class: 'jp-gpulayer-files', role: 'group', 'aria-label': trans.__('Files') });
    this._code = element('div', {
      class: 'jp-gpulayer-code',
      tabindex: 0,
      role: 'region',
      'aria-label': trans.__('Source'),
    });
    this.node.append(this._note, this._list, this._bar, this._code);
  }

  /** Read the source, once; again only where it failed before. */
  async read(): Promise<void> {
    const trans = this._trans;
    if (this._reads) {
      return;
    }
    this._reads = true;
    this._note.textContent = trans.__('Reading the source…');
    try {
      this._take(await this._readSource());
    } catch (error) {
      this._reads = false;
      this._note.replaceChildren(
        errorText(error),
        ' ',
        button(trans.__('Try again'), () => void this.read()),
      );
    }
  }

  /** Show a line, when the source is there. */
  show(path: string, line: number): void {
    this._wanted = { path, line };
    const file = this._files.find(one => one.path === path);
    if (file) {
      this._showFile(file);
    }
  }

  private _take(found: SourceFiles): void {
    const trans = this._trans;
    this._files = [...found.files].sort((one, other) => weight(one, found.script) - weight(other, found.script));
    this._onRead(summary(found, trans));
    const more = found.more_files
      ? trans._n('%1 more file travels with the job', '%1 more files travel with the job', found.more_files)
      : '';
    setText(this._note, this._files.length ? more : trans.__('No source travelled with this job.'));
    this._note.hidden = !this._note.textContent;
    this._list.replaceChildren(
      ...this._files.map(file =>
        button(file.path, () => this._showFile(file), {
          class: 'jp-gpulayer-button jp-gpulayer-file',
          'aria-pressed': 'false',
        }),
      ),
    );
    this._list.hidden = this._files.length < 2;
    const first = this._files.find(file => file.path === this._wanted?.path) ?? this._files[0];
    if (first) {
      this._showFile(first);
    }
  }

  private _showFile(file: SourceFile): void {
    const trans = this._trans;
    const text = file.text;
    [...this._list.children].forEach((one, index) =>
      one.setAttribute('aria-pressed', String(this._files[index] === file)),
    );
    if (this._shown !== file) {
      this._shown = file;
      const lines = text === null ? 0 : lineCount(text);
      const facts = [file.path, bytes(file.size_bytes), text === null ? null : trans._n('%1 line', '%1 lines', lines)];
      this._bar.replaceChildren(
        element('span', { class: 'jp-gpulayer-note' }, facts.filter(Boolean).join(' · ')),
        ...(text === null ? [] : [copyButton(() => text, trans.__('Copy %1', file.path), trans)]),
      );
      this._code.replaceChildren(
        ...(text === null
          ? [element('p', { class: 'jp-gpulayer-note' }, trans.__('No text, or too large to be shown here.'))]
          : codeOf(text, lines)),
      );
      this._code.scrollTop = 0;
    }
    this._markLine(file);
  }

  private _markLine(file: SourceFile): void {
    this._code.querySelector('.jp-gpulayer-marked-line')?.remove();
    const wanted = this._wanted;
    this._wanted = null;
    if (wanted?.path !== file.path || file.text === null) {
      return;
    }
    const place = element('div', { class: 'jp-gpulayer-marked-line' });
    place.style.setProperty('--gpulayer-line', String(wanted.line - 1));
    this._code.append(place);
    // In its box; the page moves no further than to show the box.
    this._code.scrollTop = place.offsetTop - this._code.clientHeight / 2;
    this._code.scrollIntoView({ block: 'nearest' });
    this._code.focus({ preventScroll: true });
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
