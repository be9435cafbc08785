/**
 * A job's output: the lines of one rank or of all, as they come. Puts together the model, the rows in sight, the choice of
 * ranks, the search, and what lies before; `lines_bar.ts` and `line_row.ts` draw what is said around the lines and of each.
 */
import { element } from '../elements';
import { watchSight } from '../in_sight';
import { ownKeys } from '../own_keys';
import type { RankMark } from '../rank_rows';
import type { JobSource, Subscription } from '../source';
import { onThemeChange } from '../theme';
import { FindBar } from './find_bar';
import { LineRow } from './line_row';
import { LinesBar } from './lines_bar';
import { LogModel } from './model';
import { RankSwitch } from './rank_switch';
import { browserScheduler, type Scheduler } from './scheduler';
import { Search, patternOf, plainText } from './search';
import { SelectedText } from './selected_text';
import { ShownLines } from './shown_lines';
import { VirtualRows } from './virtual_rows';
import { WholeLine } from './whole_line';

/** What is asked for at first; the rest is a scroll away. */
const TAIL_BYTES = 2 * 1024 * 1024;
/** Between two draws of lines that pour in: more often nobody reads them, and what was drawn is the browser's to clear away. */
const OUTPUT_DRAW_MS = 50;
/** With fewer lines of a rank than that, those before are fetched without being asked for. */
const FEW_LINES = 100;

export class LogsView {
  readonly node = element('div', { class: 'jp-gpulayer-logs' });
  private readonly model: LogModel;
  private shown: ShownLines;
  private readonly rows: VirtualRows;
  private readonly row: LineRow;
  private readonly ranks: RankSwitch;
  private readonly bar: LinesBar;
  private readonly find: FindBar;
  private readonly whole: WholeLine;
  private readonly search: Search;
  private readonly selected: SelectedText;
  private readonly subscriptions: Subscription[];
  private readonly resizes: ResizeObserver;
  private asked: Subscription | null = null;

  private isFollowing = true;
  private lastScroll = 0;
  private endWhenPaused = 0;
  /** What the line at a place is counted as, when the rows are drawn. */
  private numberOf: (place: number) => number;
  private currentMatch: number | null = null;
  private wantsMatch = false;
  /** When what is planned may be drawn at the earliest; null where nothing is. */
  private drawFrom: number | null = null;
  private drawnAt = -Infinity;
  private isInSight = true;
  private isDisposed = false;

  constructor(
    private readonly source: JobSource,
    private readonly scheduler: Scheduler = browserScheduler,
  ) {
    const { trans } = source;
    this.model = new LogModel(scheduler);
    this.shown = new ShownLines(this.model, source, null);
    this.numberOf = this.shown.numbering();
    this.search = new Search(scheduler, this.shown, () => this.onFound());
    this.whole = new WholeLine(trans);
    this.row = new LineRow(source, text => this.whole.show(text));
    // Lines are not read aloud as they come: a job would never be silent.
    this.rows = new VirtualRows(this.rowSource(), {
      role: 'log',
      'aria-live': 'off',
      'aria-label': trans.__('Output of the job'),
    });
    this.ranks = new RankSwitch(trans, rank => this.selectRank(rank));
    this.find = new FindBar(trans, {
      find: (query, isCaseSensitive) => this.beginSearch(query, isCaseSensitive),
      step: backwards => this.stepMatch(backwards),
      loadEarlier: () => this.loadEarlier(),
      close: () => this.closeFind(),
    });
    this.bar = new LinesBar(source, {
      follow: () => this.follow(),
      find: () => this.find.open(),
      loadEarlier: () => this.loadEarlier(),
      text: () => this.allText(),
    });
    this.selected = new SelectedText(this.rows, place => plainText(this.shown.line(place).text));
    this.node.append(
      element('div', { class: 'jp-gpulayer-logs-bar' }, this.ranks.node, this.bar.node),
      this.find.node,
      this.bar.earlier,
      this.bar.empty,
      this.rows.node,
      this.whole.node,
    );
    this.rows.node.addEventListener('scroll', () => this.onScroll(), { passive: true });
    this.node.addEventListener('keydown', event => this.onKey(event));
    this.resizes = new ResizeObserver(() => this.onResize());
    this.resizes.observe(this.rows.node);
    this.subscriptions = [
      this.model.onChange(changed => this.onChange(changed)),
      onThemeChange(() => this.onTheme()),
      watchSight(this.node, isInSight => this.setInSight(isInSight)),
      ownKeys(this.node, { finds: true }),
      this.selected.onSelect(() => this.pause()),
    ];
    this.planDraw();
  }

  /** Which ranks there are, and which of them stand out. */
  setRanks(ranks: RankMark[]): void {
    this.ranks.setRanks(ranks);
    if (this.row.showsRanks !== ranks.length > 1) {
      this.row.showsRanks = ranks.length > 1;
      this.redraw();
    }
  }

  /** Show one rank's lines, or with null those of all. */
  selectRank(rank: number | null): void {
    this.ranks.select(rank);
    if (rank === this.shown.rank) {
      return;
    }
    this.shown = new ShownLines(this.model, this.source, rank);
    this.isFollowing = true;
    this.currentMatch = null;
    this.selected.clear();
    this.rows.show(this.rowSource());
    this.search.begin(this.shown, this.search.pattern);
    if (this.shown.end - this.shown.first < FEW_LINES && this.shown.canLoad) {
      this.loadEarlier();
    }
    this.planDraw();
  }

  focus(): void {
    this.rows.node.focus({ preventScroll: true });
  }

  dispose(): void {
    this.isDisposed = true;
    this.subscriptions.forEach(subscription => subscription.dispose());
    this.asked?.dispose();
    this.resizes.disconnect();
    this.selected.dispose();
    this.search.dispose();
    this.model.dispose();
    this.node.remove();
  }

  // ---- drawing

  private rowSource(): ConstructorParameters<typeof VirtualRows>[0] {
    const { shown } = this;
    return {
      get first() {
        return shown.first;
      },
      get end() {
        return shown.end;
      },
      positionOf: place => shown.positionOf(place),
      placeAt: position => shown.placeAt(position),
      stateOf: place => `${place === this.currentMatch} ${this.numberOf(place)} ${shown.line(place).text}`,
      draw: (place, node) =>
        this.row.draw(node, shown.line(place), {
          number: this.numberOf(place),
          pattern: this.search.pattern,
          isCurrent: place === this.currentMatch,
          isMerged: shown.rank === null,
        }),
    };
  }

  private onChange(changed: ReadonlySet<number>): void {
    this.shown.checkJoint();
    for (const id of changed) {
      const place = this.shown.placeOf(id);
      if (place !== null) {
        this.search.changed(place);
      }
    }
    this.search.goOn();
    this.planDraw(this.drawnAt + OUTPUT_DRAW_MS);
  }

  private planDraw(from = -Infinity): void {
    const isPlanned = this.drawFrom !== null;
    this.drawFrom = Math.min(this.drawFrom ?? Infinity, from);
    if (!isPlanned) {
      this.scheduler.frame(() => this.onFrame());
    }
  }

  private onFrame(): void {
    if (this.isDisposed) {
      return;
    }
    if (this.scheduler.now() < (this.drawFrom ?? 0)) {
      this.scheduler.frame(() => this.onFrame());
      return;
    }
    this.drawFrom = null;
    if (!this.rows.isAway) {
      this.drawnAt = this.scheduler.now();
      this.draw();
    }
  }

  private draw(): void {
    if (this.isInSight) {
      this.row.ground(this.rows.node);
      this.numberOf = this.shown.numbering();
      this.shown.arrange();
      this.lastScroll = this.rows.draw(this.isFollowing ? this.rows.bottomScroll : null);
      this.model.keepFrom = this.isFollowing ? null : this.shown.idAt(this.rows.topAt(this.lastScroll));
    } else {
      this.rows.takeRoom();
    }
    const focused = this.node.contains(document.activeElement) ? document.activeElement : null;
    this.bar.say({
      shown: this.shown,
      isFollowing: this.isFollowing,
      isComplete: this.model.isComplete,
      behind: this.shown.end - this.endWhenPaused,
    });
    this.sayFound();
    if (focused?.closest('[hidden]')) {
      this.focus(); // the button that was pressed has done what there was to do
    }
  }

  private redraw(): void {
    this.rows.clear();
    this.planDraw();
  }

  private onTheme(): void {
    if (this.row.changesGround(this.rows.node)) {
      this.redraw();
    }
  }

  private onResize(): void {
    if (this.rows.isAway) {
      return;
    }
    if (!this.isFollowing && this.rows.node.scrollTop !== this.lastScroll) {
      this.rows.node.scrollTop = this.lastScroll; // taken off the page and put back, as notebooks do with cells out of sight
    }
    this.rows.measure();
    this.planDraw();
  }

  private setInSight(isInSight: boolean): void {
    this.isInSight = isInSight;
    if (isInSight) {
      // A notebook of old jobs asks for no more than what is looked at.
      this.asked ??= this.source.logs({ rank: null, tailBytes: TAIL_BYTES }, page => this.model.add(page));
    }
    this.planDraw();
  }

  // ---- following

  private onScroll(): void {
    if (this.rows.isAway) {
      return;
    }
    const { scrollTop } = this.rows.node;
    if (scrollTop === this.lastScroll) {
      return; // where the view itself has scrolled to, everything is drawn
    }
    if (scrollTop >= this.rows.bottomScroll - 2) {
      this.isFollowing = true;
    } else if (scrollTop < this.lastScroll - 1) {
      this.pause();
      if (scrollTop < 2 * this.rows.height && this.shown.canLoad) {
        this.loadEarlier();
      }
    }
    this.lastScroll = scrollTop;
    this.planDraw();
  }

  private pause(): void {
    if (this.isFollowing) {
      this.isFollowing = false;
      this.endWhenPaused = this.shown.end;
      this.planDraw();
    }
  }

  private follow(): void {
    this.isFollowing = true;
    this.planDraw();
  }

  private loadEarlier(): void {
    const { shown } = this;
    void shown.loadEarlier(() => {
      if (shown === this.shown) {
        this.search.goOn();
        this.planDraw();
      }
    });
    this.planDraw();
  }

  private allText(): string {
    const lines: string[] = [];
    for (let position = this.shown.first; position < this.shown.end; position++) {
      lines.push(plainText(this.shown.line(this.shown.placeAt(position)).text));
    }
    return lines.join('\n');
  }

  // ---- searching

  private beginSearch(query: string, isCaseSensitive: boolean): void {
    this.currentMatch = null;
    this.wantsMatch = true;
    this.search.begin(this.shown, patternOf(query, isCaseSensitive));
    this.redraw();
  }

  private onFound(): void {
    if (this.wantsMatch && (this.search.count > 0 || this.search.isDone)) {
      this.wantsMatch = false;
      this.goToMatch(this.search.next(this.rows.top, false));
    }
    this.planDraw();
  }

  private stepMatch(backwards: boolean): void {
    const from = this.currentMatch ?? this.rows.top;
    this.goToMatch(this.search.next(backwards || this.currentMatch === null ? from : from + 1, backwards));
  }

  private goToMatch(index: number | null): void {
    this.currentMatch = index === null ? null : (this.search.at(index) ?? null);
    if (this.currentMatch !== null) {
      this.pause();
      this.rows.reveal(this.currentMatch);
    }
    this.planDraw();
  }

  private sayFound(): void {
    if (!this.find.isOpen) {
      return;
    }
    this.find.say(
      this.bar.found(this.search, this.currentMatch),
      this.search.pattern === null ? '' : this.bar.notSearched(this.shown),
      this.search.pattern !== null && this.shown.canLoad,
    );
  }

  private closeFind(): void {
    this.find.close();
    this.search.begin(this.shown, null);
    this.currentMatch = null;
    this.redraw();
    this.focus();
  }

  private onKey(event: KeyboardEvent): void {
    const isFind = event.key === 'f' && (event.ctrlKey || event.metaKey) && !event.altKey && !event.shiftKey;
    const isInLines = event.target === this.rows.node && !event.ctrlKey && !event.metaKey && !event.altKey;
    const act =
      isFind || (isInLines && event.key === '/') ? () => this.find.open() : isInLines ? this.actOf(event.key) : null;
    if (act) {
      event.preventDefault();
      event.stopPropagation();
      act();
    }
  }

  private actOf(key: string): (() => void) | null {
    switch (key) {
      case 'End':
        return () => this.follow();
      case 'n':
      case 'N':
        return this.find.isOpen ? () => this.stepMatch(key === 'N') : null;
      case 'Escape':
        return this.find.isOpen ? () => this.closeFind() : null;
      default:
        return null;
    }
  }
}
