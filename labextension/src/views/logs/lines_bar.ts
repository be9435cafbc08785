/** What is said around the lines: how many, whether they are followed, what lies before, what was found. */
import { copyButton } from '../copying';
import { button, element, setBusy, setText } from '../elements';
import type { JobSource } from '../source';
import { count } from '../units';
import { downloadLink } from './line_row';
import type { Search } from './search';
import type { ShownLines } from './shown_lines';

export interface BarActions {
  follow(): void;
  find(): void;
  loadEarlier(): void;
  /** All that is shown. */
  text(): string;
}

export interface BarFacts {
  shown: ShownLines;
  isFollowing: boolean;
  isComplete: boolean;
  /** Lines that came since following stopped. */
  behind: number;
}

export class LinesBar {
  readonly node: HTMLElement;
  readonly earlier: HTMLElement;
  readonly empty = element('p', { class: 'jp-gpulayer-logs-empty' });
  private readonly state = element('span', { class: 'jp-gpulayer-logs-state', role: 'status' });
  private readonly behind = element('span', { class: 'jp-gpulayer-logs-behind' });
  private readonly lines = element('span', { class: 'jp-gpulayer-logs-lines' });
  private readonly followButton: HTMLButtonElement;
  private readonly earlierText = element('span');
  private readonly loadButton: HTMLButtonElement;
  private readonly download: HTMLElement;
  private downloadRank: number | null | undefined;

  constructor(
    private readonly source: JobSource,
    actions: BarActions,
  ) {
    const { trans } = source;
    this.followButton = button(trans.__('Follow'), () => actions.follow(), {
      'aria-label': trans.__('Follow the newest lines (End)'),
    });
    this.loadButton = button(trans.__('Load'), () => actions.loadEarlier(), {
      'aria-label': trans.__('Load earlier lines'),
    });
    this.download = element('span');
    this.node = element(
      'div',
      { class: 'jp-gpulayer-logs-said' },
      this.state,
      this.behind,
      this.followButton,
      this.lines,
      button(trans.__('Find'), () => actions.find(), { 'aria-label': trans.__('Find in the output (/)') }),
      copyButton(() => actions.text(), trans.__('Copy the output that is shown'), trans),
      this.download,
    );
    this.earlier = element('div', { class: 'jp-gpulayer-logs-earlier' }, this.earlierText, this.loadButton);
    this.earlier.hidden = true;
  }

  say({ shown, isFollowing, isComplete, behind }: BarFacts): void {
    const { trans } = this.source;
    const held = shown.end - shown.first;
    const before = shown.earlierLines;
    const all = held + before;
    setText(this.state, isComplete ? '' : isFollowing ? trans.__('following') : trans.__('paused'));
    setText(
      this.behind,
      isFollowing || isComplete || behind <= 0 ? '' : trans._n('%2 new line', '%2 new lines', behind, count(behind)),
    );
    this.followButton.hidden = isFollowing || isComplete;
    setText(this.lines, all > 0 ? trans._n('%2 line', '%2 lines', all, count(all)) : '');
    this.empty.hidden = all > 0;
    setText(this.empty, isComplete ? trans.__('Printed nothing') : trans.__('No output yet'));
    this.earlier.hidden = !shown.hasEarlier;
    setText(this.earlierText, this.earlierWords(shown, before));
    this.loadButton.hidden = !shown.canLoad;
    setBusy(this.loadButton, shown.isLoading);
    this.offerDownload(shown.rank);
  }

  /** "3 of 120", as far as it is known. */
  found(search: Search, current: number | null): string {
    const { trans } = this.source;
    const all = search.count;
    if (search.pattern === null) {
      return '';
    }
    if (!search.isDone) {
      return trans.__('%1 so far …', count(all));
    }
    const index = current === null ? -1 : search.indexOf(current);
    if (all === 0) {
      return trans.__('no match');
    }
    return index < 0
      ? trans._n('%2 line', '%2 lines', all, count(all))
      : trans.__('%1 of %2', count(index + 1), count(all));
  }

  notSearched(shown: ShownLines): string {
    const { trans } = this.source;
    const before = shown.earlierLines;
    if (!shown.hasEarlier) {
      return '';
    }
    return before > 0
      ? trans._n('%2 earlier line is not searched', '%2 earlier lines are not searched', before, count(before))
      : trans.__('earlier lines are not searched');
  }

  private earlierWords(shown: ShownLines, before: number): string {
    const { trans } = this.source;
    if (shown.failure !== null) {
      return trans.__('Earlier lines could not be loaded: %1', shown.failure);
    }
    if (shown.isLoading) {
      return trans.__('Loading earlier lines …');
    }
    const words =
      before > 0 ? trans._n('%2 earlier line', '%2 earlier lines', before, count(before)) : trans.__('earlier lines');
    return `— ${words}`;
  }

  private offerDownload(rank: number | null): void {
    const { actions, trans } = this.source;
    if (actions.logUrl && rank !== this.downloadRank) {
      this.downloadRank = rank;
      const link = downloadLink(actions.logUrl(rank, 'plain'), trans.__('Download'));
      link.setAttribute(
        'aria-label',
        rank === null ? trans.__('Download the whole log') : trans.__('Download the whole log of rank %1', rank),
      );
      this.download.replaceChildren(link);
    }
  }
}
