// Charts by uPlot, in the colours of the page.
import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";

export interface Line {
  label: string;
  colour: string; // a property of the style sheet, as --part-activation
  isFilled?: boolean;
  isDashed?: boolean;
  isPoints?: boolean; // without a line
  isMarked?: boolean; // with points on the line
  values: (number | null)[];
}

const style = (name: string) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

export function Chart({
  x,
  xLabel,
  yLabel,
  lines,
  label,
  choose,
}: {
  x: number[];
  xLabel: string;
  yLabel: string;
  lines: Line[];
  label: string;
  choose?: (index: number) => void;
}) {
  const box = useRef<HTMLDivElement>(null);
  useEffect(() => {
    const element = box.current;
    if (!element) return;
    const ink = style("--dim");
    const axis = { stroke: ink, grid: { stroke: style("--line"), width: 1 }, ticks: { stroke: style("--line") } };
    const plot = new uPlot(
      {
        width: element.clientWidth,
        height: 280,
        scales: { x: { time: false } },
        axes: [
          { ...axis, label: xLabel },
          { ...axis, label: yLabel, size: 64 },
        ],
        cursor: { drag: { x: false, y: false } },
        legend: { live: true },
        series: [
          { label: xLabel },
          ...lines.map((line) => ({
            label: line.label,
            stroke: style(line.colour),
            fill: line.isFilled ? `${style(line.colour)}55` : undefined,
            dash: line.isDashed ? [6, 4] : undefined,
            width: line.isPoints ? 0 : 2,
            points: { show: Boolean(line.isPoints || line.isMarked), size: 8, fill: style(line.colour) },
            paths: line.isPoints ? () => null : undefined,
          })),
        ],
      },
      [x, ...lines.map((line) => line.values)] as uPlot.AlignedData,
      element,
    );
    const click = () => choose && plot.cursor.idx != null && choose(plot.cursor.idx);
    plot.over.addEventListener("click", click);
    const observer = new ResizeObserver(() => plot.setSize({ width: element.clientWidth, height: 280 }));
    observer.observe(element);
    return () => {
      observer.disconnect();
      plot.destroy();
    };
  }, [x, lines, xLabel, yLabel, choose]);
  return <div class="chart" ref={box} role="img" aria-label={label} />;
}
