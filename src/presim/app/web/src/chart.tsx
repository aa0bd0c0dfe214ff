// Charts by uPlot, in the colours of the page.
import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { number } from "./format";

export interface Line {
  label: string;
  colour: string; // a property of the style sheet, as --part-activation
  isFilled?: boolean;
  isDashed?: boolean;
  isPoints?: boolean; // without a line
  isLarge?: boolean; // points around those of other lines
  isMarked?: boolean; // with points on the line
  isBand?: boolean; // an edge of a band: the upper one, then the lower one
  values: (number | null)[];
}

// A line across the chart, with its name.
export interface Mark {
  axis: "x" | "y";
  value: number;
  label: string;
  colour: string;
}

const HEIGHT = 280;
const style = (name: string) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

export function Chart({
  x,
  xLabel,
  yLabel,
  lines,
  label,
  choose,
  marks = [],
  isLog = false,
  describe,
}: {
  x: number[];
  xLabel: string;
  yLabel: string;
  lines: Line[];
  label: string;
  choose?: (index: number) => void;
  marks?: Mark[];
  isLog?: boolean;
  describe?: (index: number) => string; // what is said of a point beside the pointer
}) {
  const box = useRef<HTMLDivElement>(null);
  const tip = useRef<HTMLDivElement>(null);
  const drawn = JSON.stringify(marks);
  useEffect(() => {
    const element = box.current;
    if (!element) return;
    const ink = style("--dim");
    const axis = {
      stroke: ink,
      grid: { stroke: style("--line"), width: 1 },
      ticks: { stroke: style("--line") },
      values: (_: uPlot, splits: (number | null)[]) => splits.map((split) => (split === null ? "" : number(split))),
    };
    const say = (plot: uPlot) => {
      const note = tip.current;
      const index = plot.cursor.idx;
      if (!note || !describe) return;
      note.hidden = index == null || (plot.cursor.left ?? -1) < 0;
      if (index != null) note.textContent = describe(index);
    };
    const plot = new uPlot(
      {
        width: element.clientWidth,
        height: HEIGHT,
        scales: {
          x: { time: false, range: withMarks(x, marks, "x") },
          y: isLog ? { distr: 3, range: logRange(lines, marks) } : { range: withMarks(heights(lines), marks, "y") },
        },
        axes: [
          { ...axis, label: xLabel },
          { ...axis, label: yLabel, size: 64 },
        ],
        bands: lines.some((line) => line.isBand)
          ? [{ series: [1, 2], fill: `${style(lines[0]?.colour ?? "")}33` }]
          : [],
        cursor: { drag: { x: false, y: false } },
        legend: { live: true },
        hooks: { draw: [(plot: uPlot) => drawMarks(plot, marks)], setCursor: [say] },
        series: [
          { label: xLabel, value: shown },
          ...lines.map((line) => ({
            label: line.label,
            value: shown,
            stroke: style(line.colour),
            fill: line.isFilled ? `${style(line.colour)}55` : undefined,
            dash: line.isDashed ? [6, 4] : undefined,
            width: line.isLarge ? 3 : line.isPoints || line.isBand ? 0 : 2,
            points: {
              show: Boolean(line.isPoints || line.isMarked),
              size: line.isLarge ? 14 : 8,
              fill: line.isLarge ? "transparent" : style(line.colour),
              width: line.isLarge ? 3 : 1,
            },
            paths: line.isPoints ? () => null : undefined,
          })),
        ],
      },
      [x, ...lines.map((line) => line.values)] as uPlot.AlignedData,
      element,
    );
    const click = () => choose && plot.cursor.idx != null && choose(plot.cursor.idx);
    plot.over.addEventListener("click", click);
    if (choose) plot.over.style.cursor = "pointer";
    const observer = new ResizeObserver(() => plot.setSize({ width: element.clientWidth, height: HEIGHT }));
    observer.observe(element);
    return () => {
      observer.disconnect();
      plot.destroy();
    };
  }, [x, lines, xLabel, yLabel, choose, drawn, isLog, describe]);
  return (
    <>
      <div
        class={`chart ${lines.some((line) => line.isBand) ? "banded" : ""}`}
        ref={box}
        role="img"
        aria-label={[label, ...marks.map((mark) => mark.label)].join(", ")}
      />
      {describe && <div class="tip dim" ref={tip} hidden />}
    </>
  );
}

const shown = (_: uPlot, value: number | null) => (value === null || value === undefined ? "–" : number(value));

// The range of an axis: the data and the marks on it, with room at both ends.
function withMarks(x: number[], marks: Mark[], axis: "x" | "y"): [number, number] {
  const all = [...x, ...marks.filter((mark) => mark.axis === axis).map((mark) => mark.value)];
  const [low, high] = [Math.min(...all), Math.max(...all)];
  const room = (high - low || Math.abs(high) || 1) * 0.03;
  return [low >= 0 && low - room < 0 ? 0 : low - room, high + room];
}

// What the axis of heights shows: all values, and zero where areas stand on it.
const heights = (lines: Line[]) => [
  ...lines.flatMap((line) => line.values).filter((value) => value !== null),
  ...(lines.some((line) => line.isFilled) ? [0] : []),
];

function logRange(lines: Line[], marks: Mark[]): [number, number] {
  const all = [...heights(lines), ...marks.filter((mark) => mark.axis === "y").map((mark) => mark.value)];
  const positive = all.filter((value) => value > 0);
  return [Math.min(...positive) / 1.3, Math.max(...positive) * 1.3];
}

function drawMarks(plot: uPlot, marks: Mark[]) {
  const { left, top, width, height } = plot.bbox;
  const context = plot.ctx;
  const scale = devicePixelRatio;
  context.save();
  context.font = `${12 * scale}px system-ui, sans-serif`;
  for (const [index, mark] of marks.entries()) {
    const at = Math.round(plot.valToPos(mark.value, mark.axis, true));
    const isInside = mark.axis === "x" ? at >= left && at <= left + width : at >= top && at <= top + height;
    if (!isInside) continue;
    context.lineWidth = 1.5 * scale;
    context.setLineDash([4 * scale, 4 * scale]);
    context.strokeStyle = context.fillStyle = style(mark.colour);
    context.beginPath();
    context.moveTo(mark.axis === "x" ? at : left, mark.axis === "x" ? top : at);
    context.lineTo(mark.axis === "x" ? at : left + width, mark.axis === "x" ? top + height : at);
    context.stroke();
    const isRight = mark.axis === "x" && at > left + width * 0.8;
    context.textAlign = isRight ? "right" : "left";
    const offset = (isRight ? -4 : 4) * scale;
    const [x, y] =
      mark.axis === "x" ? [at + offset, top + height - (8 + 16 * index) * scale] : [left + 4 * scale, at - 6 * scale];
    context.setLineDash([]);
    context.strokeStyle = style("--paper"); // a rim, so that points below do not cross the letters
    context.lineWidth = 4 * scale;
    context.strokeText(mark.label, x, y);
    context.fillText(mark.label, x, y);
  }
  context.restore();
}
