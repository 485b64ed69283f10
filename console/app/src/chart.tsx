// Charts of time series, drawn by uPlot in the colours of the style sheet.
import uPlot from "uplot";
import { useEffect, useRef } from "preact/hooks";

/** Series is one line, or one colour of the bars. */
export interface Series {
  name: string;
  values: (number | null)[];
}

interface Props {
  /** label says what the chart shows, to those who do not see it. */
  label: string;
  /** times are in milliseconds since 1970, ascending. */
  times: number[];
  series: Series[];
  bars?: boolean;
  /** write writes a value of the left axis. */
  write(value: number): string;
  /** onZoom is called with the range that was drawn with the mouse, in milliseconds. */
  onZoom?(from: number, to: number): void;
}

const chartPixels = 220;

/** colours are the names of the style sheet's colours for lines and bars, in order. */
export const colours = 10;

function colour(i: number): string {
  return getComputedStyle(document.documentElement).getPropertyValue(`--line-${(i % colours) + 1}`).trim();
}

const second = 1;
const minute = 60 * second;
const hour = 60 * minute;
const day = 24 * hour;

// How times are written on the axis, by the distance of ticks in seconds, in uPlot's own form: the usual text, and what
// is added where a day begins.
const ticks: uPlot.Axis.Values = [
  [day, "{D} {MMM}", null, null, null, null, null, null, 1],
  [minute, "{HH}:{mm}", null, null, "\n{D} {MMM}", null, null, null, 1],
  [second, "{HH}:{mm}:{ss}", null, null, "\n{D} {MMM}", null, null, null, 1],
];

function options(props: Props, width: number): uPlot.Options {
  const style = getComputedStyle(document.documentElement);
  const ink = style.getPropertyValue("--muted").trim();
  const grid = { stroke: style.getPropertyValue("--line").trim(), width: 1 };
  const font = `12px ${style.fontFamily}`;
  const axis = { stroke: ink, grid, ticks: grid, font };
  return {
    width,
    height: chartPixels,
    padding: [8, 28, 0, 0],
    legend: { show: false },
    cursor: { drag: { x: props.onZoom !== undefined, y: false, setScale: false }, points: { show: !props.bars } },
    scales: { y: { range: (_, __, max) => [0, max > 0 ? max * 1.08 : 1] } },
    axes: [{ ...axis, values: ticks, space: 80 }, { ...axis, size: 64, values: (_, ticks) => ticks.map(props.write) }],
    series: [
      {},
      ...props.series.map((s, i) => ({
        label: s.name,
        stroke: colour(i),
        width: props.bars ? 0 : 2,
        fill: props.bars ? colour(i) : undefined,
        points: { show: false },
        paths: props.bars ? uPlot.paths.bars!({ size: [0.9, 60], align: 1 }) : undefined,
      })),
    ],
    hooks: {
      setSelect: [
        (plot) => {
          const { left, width: drawn } = plot.select;
          if (drawn < 3) return;
          props.onZoom?.(plot.posToVal(left, "x") * 1000, plot.posToVal(left + drawn, "x") * 1000);
          plot.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
        },
      ],
    },
  };
}

/** stacked puts each series on top of those after it, so that bars that are drawn in order show shares. */
function stacked(series: Series[]): (number | null)[][] {
  const sums = series.map((s) => [...s.values]);
  for (let i = sums.length - 2; i >= 0; i--) {
    sums[i] = sums[i]!.map((n, at) => (n ?? 0) + (sums[i + 1]![at] ?? 0));
  }
  return sums;
}

function data(props: Props): uPlot.AlignedData {
  const values = props.bars ? stacked(props.series) : props.series.map((s) => s.values);
  return [props.times.map((t) => t / 1000), ...values] as uPlot.AlignedData;
}

export function Chart(props: Props) {
  const place = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const latest = useRef(props);
  latest.current = props;
  const names = props.series.map((s) => s.name).join("\n");

  useEffect(() => {
    const box = place.current!;
    const draw = () => {
      plot.current?.destroy();
      const bound = { ...latest.current, onZoom: latest.current.onZoom && ((from: number, to: number) => latest.current.onZoom!(from, to)) };
      plot.current = new uPlot(options(bound, box.clientWidth), data(latest.current), box);
    };
    draw();
    const resized = new ResizeObserver(() => plot.current?.setSize({ width: box.clientWidth, height: chartPixels }));
    resized.observe(box);
    const dark = matchMedia("(prefers-color-scheme: dark)");
    const theme = new MutationObserver(draw);
    dark.addEventListener("change", draw);
    theme.observe(document.documentElement, { attributeFilter: ["data-theme"] });
    return () => {
      resized.disconnect();
      theme.disconnect();
      dark.removeEventListener("change", draw);
      plot.current?.destroy();
    };
  }, [names, props.bars]);
  useEffect(() => plot.current?.setData(data(props)), [props.times, props.series]);

  return (
    <figure class="chart">
      <div ref={place} role="img" aria-label={props.label} />
      <figcaption>
        {props.series.map((s, i) => (
          <span class="key" key={s.name}><i class={`swatch c${(i % colours) + 1}`} aria-hidden="true" />{s.name}</span>
        ))}
      </figcaption>
    </figure>
  );
}
