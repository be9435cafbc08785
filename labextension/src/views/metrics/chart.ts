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
  private readonly _options: ChartOptions;
  private readonly _trans: Translator;
  private readonly _keys = element('span', { class: 'jp-gpulayer-keys' });
  private readonly _plot: HTMLElement;
  private readonly _readout = element('div', { class: 'jp-gpulayer-readout', 'aria-hidden': 'true' });
  private readonly _inks: Inks;
  private readonly _resize = new ResizeObserver(() => this._fit());
  private readonly _themed: Subscription;
  private _data: ChartData | null = null;
  private _uplot: uPlot | null = null;
  private _shape = '';
  private _at: number | null = null;
  private _isReading = false;

  constructor(trans: Translator, options: ChartOptions) {
    this._trans = trans;
    this._options = options;
    const probe = element('span', { class: 'jp-gpulayer-probe', 'aria-hidden': 'true' });
    this._inks = new Inks(probe);
    this._plot = element('div', {
      class: 'jp-gpulayer-plot',
      role: 'slider',
      tabindex: 0,
      'aria-label': trans.__('%1: arrow keys read the values', options.title),
      'aria-valuemin': 0,
      'aria-valuemax': 0,
      'aria-valuenow': 0,
    });
    this._plot.style.height = `${options.height}px`;
    this._plot.addEventListener('keydown', event => this._onKey(event));
    this._plot.addEventListener('blur', () => this._read(null));
    this.node = element(
      'figure',
      { class: 'jp-gpulayer-chart' },
      element(
        'figcaption',
        {},
        element('span', { class: 'jp-gpulayer-chart-title', title: options.title }, options.title),
        this._keys,
      ),
      this._plot,
      this._readout,
      probe,
    );
    this._resize.observe(this._plot);
    this._themed = onThemeChange(() => {
      if (this._inks.refresh()) {
        this._uplot?.redraw(false);
      }
    });
  }

  draw(data: ChartData): void {
    this._data = data;
    const width = this._width();
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
    if (this._uplot === null || shape !== this._shape) {
      this._shape = shape;
      this._uplot?.destroy();
      this._drawKeys(data);
      this._uplot = new uPlot(this._uplotOptions(data, width, isLog), columns, this._plot);
    } else {
      this._uplot.setData(columns);
    }
    this._plot.setAttribute('aria-valuemax', String(Math.max(0, data.xs.length - 1)));
    this._say();
  }

  dispose(): void {
    this._resize.disconnect();
    this._themed.dispose();
    this._uplot?.destroy();
    this._uplot = null;
  }

  private _width(): number {
    return this._options.width?.() ?? this._plot.clientWidth;
  }

  private _fit(): void {
    const width = this._width();
    if (width <= 0 || this._data === null) {
      return;
    }
    if (this._uplot === null) {
      this.draw(this._data);
    } else if (Math.abs(this._uplot.width - width) >= 1) {
      this._uplot.setSize({ width, height: this._options.height });
    }
  }

  private _uplotOptions(data: ChartData, width: number, isLog: boolean): uPlot.Options {
    const ink = (property: string) => (): string => this._inks.get(property);
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
      height: this._options.height,
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
        fill: () => faded(this._inks.get(lineInk(band.ink))),
      })),
      hooks: {
        setCursor: [chart => this._follow(chart)],
        draw: [chart => this._drawEdges(chart)],
      },
    };
  }

  private _follow(chart: uPlot): void {
    const at = chart.cursor.idx ?? null;
    if (at !== this._at) {
      this._at = at;
      this._say();
    }
  }

  /** What stands there, or without a place the newest. */
  private _say(): void {
    const data = this._data;
    if (data === null || !data.xs.length) {
      return;
    }
    const at = Math.min(this._at ?? data.xs.length - 1, data.xs.length - 1);
    const text = data.textAt(at);
    setText(this._readout, text);
    this._readout.title = text;
    // Read aloud only when a person moves the reading line: new values come all the time.
    if (this._isReading || !this._plot.hasAttribute('aria-valuetext') || document.activeElement !== this._plot) {
      this._plot.setAttribute('aria-valuenow', String(at));
      this._plot.setAttribute('aria-valuetext', text);
    }
  }

  private _onKey(event: KeyboardEvent): void {
    const last = (this._data?.xs.length ?? 0) - 1;
    const from = this._at ?? last + 1;
    const to = {
      ArrowLeft: from - 1,
      ArrowRight: from + 1,
      PageUp: from - 10,
      PageDown: from + 10,
      Home: 0,
      End: last,
    }[event.key];
    if (event.key === 'Escape') {
      this._read(null);
    } else if (to !== undefined && last >= 0) {
      event.preventDefault();
      this._read(Math.min(last, Math.max(0, to)));
    }
  }

  private _read(at: number | null): void {
    const [chart, data] = [this._uplot, this._data];
    if (chart === null || data === null || (at === null && this._at === null)) {
      return;
    }
    this._isReading = at !== null;
    const left = at === null ? -10 : chart.valToPos(data.xs[at] ?? 0, 'x');
    chart.setCursor({ left, top: at === null ? -10 : chart.over.clientHeight / 2 }, false);
    this._at = at;
    this._say();
    this._isReading = false;
  }

  /** An infinite value is a triangle at the edge that it lies beyond. */
  private _drawEdges(chart: uPlot): void {
    const { ctx, bbox } = chart;
    const size = MARK * uPlot.pxRatio;
    ctx.save();
    for (const mark of this._data?.edges ?? []) {
      const x = chart.valToPos(mark.x, 'x', true);
      const [edge, inwards] = mark.isHigh ? [bbox.top, size * 1.5] : [bbox.top + bbox.height, -size * 1.5];
      ctx.fillStyle = this._inks.get(lineInk(mark.ink));
      ctx.beginPath();
      ctx.moveTo(x, edge);
      ctx.lineTo(x - size, edge + inwards);
      ctx.lineTo(x + size, edge + inwards);
      ctx.fill();
    }
    ctx.restore();
  }

  private _drawKeys(data: ChartData): void {
    const shown = data.lines.length > 1 ? data.lines.slice(0, KEYS_SHOWN) : [];
    const keys = shown.map((line, index) => {
      const key = element('span', { class: 'jp-gpulayer-key' }, sample(dashOf(data, index)), line.label);
      key.style.setProperty('--gpulayer-ink', `var(${lineInk(line.ink)})`);
      return key;
    });
    const more = data.lines.length - shown.length;
    const trans = this._trans;
    const band = data.isOverRanks ? trans.__('band: least to most over ranks') : trans.__('band: least to most');
    this._keys.replaceChildren(
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
