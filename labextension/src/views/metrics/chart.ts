/** One chart, drawn by uPlot: lines, bands and what stands under the pointer or, moved by arrow keys, the reading line. */
import uPlot from 'uplot';
import { element, setText, svg } from '../elements';
import type { Subscription, Translator } from '../source';
import { Inks, lineInk, onThemeChange } from '../theme';
import { value } from '../units';
import type { ChartData } from './chart_data';
import { axisText, columnsOf, dashOf, faded, FONT, hasPositive, KEYS_SHOWN, yWidth } from './chart_strokes';

export interface ChartOptions {
  title: string;
  height: number;
  /** In CSS pixels; what the page gives it, by itself. */
  width?: () => number;
}

const MARK = 4;
/** Two periods of the longest dash, about. */
const KEY_WIDTH = 27;

export class Chart {
  readonly node: HTMLElement;
  isLog = false;
  private readonly options: ChartOptions;
  private readonly trans: Translator;
  private readonly keys = element('span', { class: 'jp-gpulayer-keys' });
  private readonly plot: HTMLElement;
  private readonly readout = element('div', { class: 'jp-gpulayer-readout', 'aria-hidden': 'true' });
  private readonly inks: Inks;
  private readonly resize = new ResizeObserver(() => this.fit());
  private readonly themed: Subscription;
  private data: ChartData | null = null;
  private uplot: uPlot | null = null;
  private shape = '';
  private at: number | null = null;
  private isReading = false;

  constructor(trans: Translator, options: ChartOptions) {
    this.trans = trans;
    this.options = options;
    const probe = element('span', { class: 'jp-gpulayer-probe', 'aria-hidden': 'true' });
    this.inks = new Inks(probe);
    this.plot = element('div', {
      class: 'jp-gpulayer-plot',
      role: 'slider',
      tabindex: 0,
      'aria-label': trans.__('%1: arrow keys read the values', options.title),
      'aria-valuemin': 0,
      'aria-valuemax': 0,
      'aria-valuenow': 0,
    });
    this.plot.style.height = `${options.height}px`;
    this.plot.addEventListener('keydown', event => this.onKey(event));
    this.plot.addEventListener('blur', () => this.read(null));
    this.node = element(
      'figure',
      { class: 'jp-gpulayer-chart' },
      element(
        'figcaption',
        {},
        element('span', { class: 'jp-gpulayer-chart-title', title: options.title }, options.title),
        this.keys,
      ),
      this.plot,
      this.readout,
      probe,
    );
    this.resize.observe(this.plot);
    this.themed = onThemeChange(() => {
      if (this.inks.refresh()) {
        this.uplot?.redraw(false);
      }
    });
  }

  draw(data: ChartData): void {
    this.data = data;
    const width = this.width();
    if (width <= 0) {
      return; // not on the page, or in a tab that is not open: the size comes when it is
    }
    const isLog = this.isLog && hasPositive(data);
    const shape = JSON.stringify([
      data.axis,
      isLog,
      data.lines.map(line => [line.label, line.ink]),
      data.bands.map(band => band.ink),
    ]);
    const columns = columnsOf(data, isLog);
    if (this.uplot === null || shape !== this.shape) {
      this.shape = shape;
      this.uplot?.destroy();
      this.drawKeys(data);
      this.uplot = new uPlot(this.uplotOptions(data, width, isLog), columns, this.plot);
    } else {
      this.uplot.setData(columns);
    }
    this.plot.setAttribute('aria-valuemax', String(Math.max(0, data.xs.length - 1)));
    this.say();
  }

  dispose(): void {
    this.resize.disconnect();
    this.themed.dispose();
    this.uplot?.destroy();
    this.uplot = null;
  }

  private width(): number {
    return this.options.width?.() ?? this.plot.clientWidth;
  }

  private fit(): void {
    const width = this.width();
    if (width <= 0 || this.data === null) {
      return;
    }
    if (this.uplot === null) {
      this.draw(this.data);
    } else if (Math.abs(this.uplot.width - width) >= 1) {
      this.uplot.setSize({ width, height: this.options.height });
    }
  }

  private uplotOptions(data: ChartData, width: number, isLog: boolean): uPlot.Options {
    const ink = (property: string) => (): string => this.inks.get(property);
    const axis = {
      stroke: ink('--gpulayer-muted'),
      grid: { stroke: ink('--gpulayer-grid'), width: 1 },
      ticks: { show: false },
      font: FONT,
    };
    const lines = data.lines.map((line, index): uPlot.Series => ({
      label: line.label,
      stroke: ink(lineInk(line.ink)),
      width: 1.25,
      dash: dashOf(data, index),
      points: data.lines.length > KEYS_SHOWN ? { show: false } : { size: 4 },
    }));
    const edge = (number: number): uPlot.Series => ({
      stroke: ink(lineInk(number)),
      width: 0,
      points: { show: false },
    });
    const first = lines.length + 1;
    return {
      width,
      height: this.options.height,
      legend: { show: false },
      padding: [8, 14, 0, 0],
      scales: { x: { time: false }, y: isLog ? { distr: 3 } : {} },
      cursor: { y: false, drag: { x: false, y: false, setScale: false }, points: { size: 6 } },
      axes: [
        {
          ...axis,
          size: 22,
          gap: 4,
          space: 60,
          values: (_, splits) => splits.map(split => axisText(split, data.axis)),
        },
        {
          ...axis,
          gap: 4,
          space: 28,
          size: (_, texts) => yWidth(texts),
          values: (_, splits) => splits.map(split => (split === null ? '' : value(split))),
        },
      ],
      series: [{}, ...lines, ...data.bands.flatMap(band => [edge(band.ink), edge(band.ink)])],
      bands: data.bands.map((band, index) => ({
        series: [first + index * 2 + 1, first + index * 2],
        fill: () => faded(this.inks.get(lineInk(band.ink))),
      })),
      hooks: {
        setCursor: [chart => this.follow(chart)],
        draw: [chart => this.drawEdges(chart)],
      },
    };
  }

  private follow(chart: uPlot): void {
    const at = chart.cursor.idx ?? null;
    if (at !== this.at) {
      this.at = at;
      this.say();
    }
  }

  /** What stands there, or without a place the newest. */
  private say(): void {
    const data = this.data;
    if (data === null || !data.xs.length) {
      return;
    }
    const at = Math.min(this.at ?? data.xs.length - 1, data.xs.length - 1);
    const text = data.textAt(at);
    setText(this.readout, text);
    this.readout.title = text;
    // Read aloud only when a person moves the reading line: new values come all the time.
    if (this.isReading || !this.plot.hasAttribute('aria-valuetext') || document.activeElement !== this.plot) {
      this.plot.setAttribute('aria-valuenow', String(at));
      this.plot.setAttribute('aria-valuetext', text);
    }
  }

  private onKey(event: KeyboardEvent): void {
    const last = (this.data?.xs.length ?? 0) - 1;
    const from = this.at ?? last + 1;
    const to = {
      ArrowLeft: from - 1,
      ArrowRight: from + 1,
      PageUp: from - 10,
      PageDown: from + 10,
      Home: 0,
      End: last,
    }[event.key];
    if (event.key === 'Escape') {
      this.read(null);
    } else if (to !== undefined && last >= 0) {
      event.preventDefault();
      this.read(Math.min(last, Math.max(0, to)));
    }
  }

  private read(at: number | null): void {
    const [chart, data] = [this.uplot, this.data];
    if (chart === null || data === null || (at === null && this.at === null)) {
      return;
    }
    this.isReading = at !== null;
    const left = at === null ? -10 : chart.valToPos(data.xs[at] ?? 0, 'x');
    chart.setCursor({ left, top: at === null ? -10 : chart.over.clientHeight / 2 }, false);
    this.at = at;
    this.say();
    this.isReading = false;
  }

  /** An infinite value is a triangle at the edge that it lies beyond. */
  private drawEdges(chart: uPlot): void {
    const { ctx, bbox } = chart;
    const size = MARK * uPlot.pxRatio;
    ctx.save();
    for (const mark of this.data?.edges ?? []) {
      const x = chart.valToPos(mark.x, 'x', true);
      const [edge, inwards] = mark.isHigh ? [bbox.top, size * 1.5] : [bbox.top + bbox.height, -size * 1.5];
      ctx.fillStyle = this.inks.get(lineInk(mark.ink));
      ctx.beginPath();
      ctx.moveTo(x, edge);
      ctx.lineTo(x - size, edge + inwards);
      ctx.lineTo(x + size, edge + inwards);
      ctx.fill();
    }
    ctx.restore();
  }

  private drawKeys(data: ChartData): void {
    const shown = data.lines.length > 1 ? data.lines.slice(0, KEYS_SHOWN) : [];
    const keys = shown.map((line, index) => {
      const key = element('span', { class: 'jp-gpulayer-key' }, sample(dashOf(data, index)), line.label);
      key.style.setProperty('--gpulayer-ink', `var(${lineInk(line.ink)})`);
      return key;
    });
    const more = data.lines.length - shown.length;
    const trans = this.trans;
    const band = data.isOverRanks ? trans.__('band: least to most over ranks') : trans.__('band: least to most');
    this.keys.replaceChildren(
      ...keys,
      ...(shown.length && more > 0 ? [trans.__('and %1 more', more)] : []),
      ...(data.bands.length && data.lines.length ? [element('span', {}, band)] : []),
    );
  }
}

/** A piece of a line, as the chart draws it. */
function sample(dash: readonly number[] | undefined): SVGElement {
  const line = svg('line', { x1: 0, y1: 2, x2: KEY_WIDTH, y2: 2, 'stroke-dasharray': dash?.join(' ') });
  return svg('svg', { width: KEY_WIDTH, height: 4, viewBox: `0 0 ${KEY_WIDTH} 4`, 'aria-hidden': 'true' }, line);
}
