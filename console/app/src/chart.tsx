// Charts of time series, drawn by uPlot in the colours of the style sheet.
import uPlot from "uplot";
import { useEffect, useRef, useState } from "preact/hooks";
import { brief, local } from "./format";

/** Series is one line, or one colour of the bars. */
export interface Series {
  name: string;
  values: (number | null)[];
  /** colour is the number of its colour in the style sheet, from 1 on. Without it, the place in the list. */
  colour?: number;
}

interface Props {
  /** label says what the chart shows, to those who do not see it. */
  label: string;
  /** times are in milliseconds since 1970, ascending. */
  times: number[];
  series: Series[];
  /** write writes a value, also on the left axis. */
  write(value: number): string;
  /** unit is what values count, or are measured in. It stands over the left axis. */
  unit: string;
  /** steps are distances of lines across that are round; without them, those of uPlot. */
  steps?: number[];
  /** bars: stacked ones of counts, the first series at the bottom. */
  bars?: Bars;
}

export interface Bars {
  /** end is when the last bar ends. The others end where the next one begins. */
  end: number;
  /** now is where a line marks the present, if that is between the first bar and the end. */
  now: number;
  /** name says when a bar is. */
  name(i: number): string;
  /** onZoom is called with the range that was drawn with the mouse or a finger, in milliseconds. */
  onZoom(from: number, to: number): void;
  /** onEnter is called if Enter is pressed at a bar. */
  onEnter(i: number): void;
}

const chartPixels = 240;

/** colours are how many colours the style sheet has for lines and bars. */
export const colours = 11;

const numberOf = (s: Series, i: number) => s.colour ?? (i % colours) + 1;

const second = 1;
const minute = 60 * second;
const day = 24 * 60 * minute;

// How times are written on the axis, by the distance of ticks in seconds, in uPlot's own form: the usual text, and what
// is added where a year or a day begins.
const ticks: uPlot.Axis.Values = [
  [day, "{D} {MMM}", "\n{YYYY}", null, null, null, null, null, 1],
  [minute, "{HH}:{mm}", null, null, "\n{D} {MMM}", null, null, null, 1],
  [second, "{HH}:{mm}:{ss}", null, null, "\n{D} {MMM}", null, null, null, 1],
];

const round = (from: number, to: number) =>
  Array.from({ length: to - from }, (_, power) => [1, 2, 5].map((n) => n * 10 ** (from + power))).flat();

// Counts have no ticks between two whole numbers.
const wholes = round(0, 15);

/** durations are round numbers of milliseconds, and then of seconds, minutes, hours and days. */
export const durations = [
  ...round(-3, 3),
  ...[1, 2, 5, 10, 20, 30].map((n) => n * 1000),
  ...[1, 2, 5, 10, 20, 30].map((n) => n * 60_000),
  ...[1, 2, 4, 6, 12].map((n) => n * 3_600_000),
  ...round(0, 5).map((n) => n * 86_400_000),
];

// Over the plot are the unit and, under it, the word now.
const headPixels = 32;
const lineHeightPixels = 16;

// A bar is at least so high, if it is not 0: it would not be seen beside a peak.
const leastBarPixels = 2;
const axisPixels = 50;

// A shorter selection is a click that slipped, which a finger does sooner.
const leastPixels = { mouse: 5, finger: 24 };

/** axisWidth makes room for the longest label. */
function axisWidth(plot: uPlot, labels: string[] | null): number {
  const widths = (labels ?? []).map((text) => plot.ctx.measureText(text).width / devicePixelRatio);
  return Math.ceil(Math.max(24, ...widths)) + 20;
}

function options(latest: { current: Props }, width: number, read: (i: number | null) => void): uPlot.Options {
  const style = getComputedStyle(document.documentElement);
  const paint = (name: string) => style.getPropertyValue(name).trim();
  const grid = { stroke: paint("--line"), width: 1 };
  const axis = { stroke: paint("--muted"), grid, ticks: grid, font: `12px ${style.fontFamily}` };
  const { bars } = latest.current;
  const write = bars ? brief : latest.current.write;
  return {
    width,
    height: chartPixels,
    padding: [headPixels, 28, 0, 0],
    legend: { show: false },
    cursor: { y: false, drag: { x: bars !== undefined, y: false, setScale: false }, points: { show: !bars } },
    scales: {
      x: bars ? { range: () => [latest.current.times[0]! / 1000, latest.current.bars!.end / 1000] } : {},
      y: { range: (_, __, max) => [0, top(max)] },
    },
    axes: [
      { ...axis, values: ticks, space: 80 },
      { ...axis, size: axisWidth, incrs: bars ? wholes : latest.current.steps, values: (_, ticks) => ticks.map(write) },
    ],
    series: [{}, ...latest.current.series.map((s, i) => drawn(paint(`--line-${numberOf(s, i)}`), s.name, bars !== undefined))
      [bars ? "reverse" : "slice"]()],
    hooks: {
      setCursor: [(plot) => read(indexAt(plot, bars !== undefined))],
      setSelect: [(plot) => selected(plot, latest.current.bars, leastPixels.mouse)],
      draw: [(plot) => writeUnit(plot, latest.current.unit, paint("--muted")), (plot) => markNow(plot, latest.current, paint("--pico-color"))],
    },
  };
}

function drawn(colour: string, label: string, bars: boolean): uPlot.Series {
  const points = { show: false };
  if (!bars) return { label, points, stroke: colour, width: 2 };
  return { label, points, fill: colour, width: 0, paths: uPlot.paths.bars!({ size: [1, Infinity], gap: 1, align: 1 }) };
}

/** top is where the axis of values ends. */
const top = (max: number) => (max > 0 ? max * 1.08 : 1);

function writeUnit({ ctx, bbox }: uPlot, unit: string, ink: string) {
  ctx.save();
  ctx.fillStyle = ink;
  ctx.textAlign = "left";
  ctx.textBaseline = "bottom";
  ctx.fillText(unit, 0, bbox.top - lineHeightPixels * devicePixelRatio);
  ctx.restore();
}

/** indexAt is which point, or bar, is at the cursor. */
function indexAt(plot: uPlot, bars: boolean): number | null {
  const { left, idx } = plot.cursor;
  if (left === undefined || left < 0 || idx == null) return null;
  return bars && plot.data[0][idx]! > plot.posToVal(left, "x") ? Math.max(0, idx - 1) : idx;
}

function selected(plot: uPlot, bars: Bars | undefined, least: number) {
  const { left, width } = plot.select;
  plot.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
  if (width >= least) bars?.onZoom(plot.posToVal(left, "x") * 1000, plot.posToVal(left + width, "x") * 1000);
}

function markNow(plot: uPlot, { bars, times }: Props, ink: string) {
  if (!bars || bars.now < times[0]! || bars.now > bars.end) return;
  const { ctx } = plot;
  const x = Math.round(plot.valToPos(bars.now / 1000, "x", true));
  ctx.save();
  ctx.strokeStyle = ctx.fillStyle = ink;
  ctx.lineWidth = devicePixelRatio;
  ctx.setLineDash([4 * devicePixelRatio, 3 * devicePixelRatio]);
  ctx.beginPath();
  ctx.moveTo(x, plot.bbox.top);
  ctx.lineTo(x, plot.bbox.top + plot.bbox.height);
  ctx.stroke();
  ctx.textAlign = "center";
  ctx.textBaseline = "bottom";
  ctx.fillText("now", x, plot.bbox.top - 2 * devicePixelRatio);
  ctx.restore();
}

/** fingers has a range drawn with a finger, too: uPlot knows only mice. */
function fingers(plot: uPlot, latest: { current: Props }) {
  const { over } = plot;
  let begin = 0;
  const at = (event: PointerEvent) =>
    Math.min(Math.max(0, event.clientX - over.getBoundingClientRect().left), over.clientWidth);
  over.addEventListener("pointerdown", (event) => (begin = at(event)));
  over.addEventListener("pointermove", (event) => {
    if (event.pointerType !== "touch" || !latest.current.bars) return;
    const left = Math.min(begin, at(event));
    plot.setSelect({ left, top: 0, width: Math.max(begin, at(event)) - left, height: over.clientHeight }, false);
  });
  over.addEventListener("pointerup", (event) => {
    if (event.pointerType === "touch") selected(plot, latest.current.bars, leastPixels.finger);
  });
  over.addEventListener("pointercancel", () => selected(plot, undefined, 0));
}

/** stacked puts each series on top of those after it, so that bars that are drawn in order show shares. */
function stacked(series: Series[]): (number | null)[][] {
  const sums = series.map((s) => [...s.values]);
  for (let i = sums.length - 2; i >= 0; i--) {
    sums[i] = sums[i]!.map((n, at) => (n ?? 0) + (sums[i + 1]![at] ?? 0));
  }
  return sums;
}

/** seen draws out bars that are not 0 so that they can be seen. The first series has the whole bars. */
function seen(bars: (number | null)[][]): (number | null)[][] {
  const whole = (bars[0] ?? []).map((n) => n ?? 0);
  const least = (leastBarPixels * top(Math.max(...whole))) / (chartPixels - headPixels - axisPixels);
  return bars.map((parts) => parts.map((n, at) => n && n * Math.max(1, least / whole[at]!)));
}

function data(props: Props): uPlot.AlignedData {
  const values = props.bars ? seen(stacked([...props.series].reverse())) : props.series.map((s) => s.values);
  return [props.times.map((t) => t / 1000), ...values] as uPlot.AlignedData;
}

/** Chart shows the values at the mouse, or where the arrow keys lead if it has the focus. */
export function Chart(props: Props) {
  const place = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const latest = useRef(props);
  latest.current = props;
  const [at, read] = useState<number | null>(null);
  const names = props.series.map((s, i) => `${numberOf(s, i)} ${s.name}`).join("\n");

  useEffect(() => {
    const box = place.current!;
    const draw = () => {
      plot.current?.destroy();
      plot.current = new uPlot(options(latest, box.clientWidth, read), data(latest.current), box);
      fingers(plot.current, latest);
    };
    draw();
    const resized = new ResizeObserver(() => plot.current?.setSize({ width: box.clientWidth, height: chartPixels }));
    resized.observe(box);
    const theme = new MutationObserver(draw);
    theme.observe(document.documentElement, { attributeFilter: ["data-theme"] });
    return () => {
      resized.disconnect();
      theme.disconnect();
      plot.current?.destroy();
    };
  }, [names, props.bars !== undefined]);
  useEffect(() => plot.current?.setData(data(props)), [props.times, props.series]);

  const onKeyDown = (event: KeyboardEvent) => {
    const last = props.times.length - 1;
    const steps: Record<string, number> = { ArrowLeft: (at ?? last + 1) - 1, ArrowRight: (at ?? -1) + 1, Home: 0, End: last };
    const to = steps[event.key];
    if (event.key === "Enter" && at !== null) props.bars?.onEnter(at);
    else if (event.key === "Escape") move(plot.current!, null);
    else if (to !== undefined) move(plot.current!, Math.min(Math.max(0, to), last), props.bars?.end);
    else return;
    event.preventDefault();
  };
  return (
    <figure class="chart">
      <div class="plot">
        <div ref={place} role="img" aria-label={props.label} tabIndex={0} onKeyDown={onKeyDown} onBlur={() => move(plot.current!, null)} />
        <Reading {...props} at={at} left={plot.current ? plot.current.over.offsetLeft + (plot.current.cursor.left ?? 0) : 0}
          width={place.current?.clientWidth ?? 0} />
      </div>
      <figcaption>
        {props.series.map((s, i) => <span class="key" key={s.name}><Swatch colour={numberOf(s, i)} /><bdi>{s.name}</bdi></span>)}
      </figcaption>
    </figure>
  );
}

/** move puts the cursor in the middle of a bar, or on a point; null: takes it away. */
function move(plot: uPlot, to: number | null, end?: number) {
  if (to === null) return plot.setCursor({ left: -10, top: -10 });
  const [times] = plot.data;
  const middle = end === undefined ? times[to]! : (times[to]! + (times[to + 1] ?? end / 1000)) / 2;
  plot.setCursor({ left: plot.valToPos(middle, "x"), top: 0 });
}

function Swatch(props: { colour: number }) {
  return <i class={`swatch c${props.colour}`} aria-hidden="true" />;
}

/** Reading says the values at the cursor, beside it. */
function Reading(props: Props & { at: number | null; left: number; width: number }) {
  const { at, bars, series, left, width } = props;
  const shown = at === null || at >= props.times.length ? [] : series.map((s, i) => ({ ...s, value: s.values[at], colour: numberOf(s, i) }));
  const style = left > width / 2 ? { right: `${width - left + 12}px` } : { left: `${left + 12}px` };
  return (
    <div class="reading" role="status" style={style}>
      {shown.length > 0 && (
        <>
          <b>{bars ? bars.name(at!) : local(props.times[at!]!)}</b>
          {shown.filter((s) => s.value != null && !(bars && s.value === 0)).map((s) => (
            <div key={s.name}><Swatch colour={s.colour} /><bdi>{s.name}</bdi> <span>{props.write(s.value!)}</span></div>
          ))}
        </>
      )}
    </div>
  );
}
