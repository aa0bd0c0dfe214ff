// A sweep: one control over all of its words, as a chart of a figure and as a table.
import { useEffect, useMemo, useState } from "preact/hooks";
import type { Answers } from "./answers";
import type { Figure, Values } from "./api";
import { Chart } from "./chart";
import { Difference, Problem, Table } from "./ui";

export interface Swept {
  label: string;
  field: string;
  words: string[];
  values: Values[]; // by word
}

interface Point {
  word: string;
  figures?: Figure[];
  error?: string;
}

export function Sweep({ answers, swept, base }: { answers: Answers; swept: Swept; base: Figure[] }) {
  const [points, setPoints] = useState<Point[]>([]);
  const [key, setKey] = useState(base[0]?.key ?? "");
  useEffect(() => {
    let isCurrent = true;
    setPoints([]);
    const ask = async () => {
      for (const [index, word] of swept.words.entries()) {
        const point = await answers.ask(swept.values[index] ?? {}).then(
          (summary): Point => ({ word, figures: summary.figures }),
          (problem: Error): Point => ({ word, error: problem.message }),
        );
        if (!isCurrent) return;
        setPoints((before) => [...before, point]);
      }
    };
    ask();
    return () => {
      isCurrent = false;
    };
  }, [answers, swept]);
  const isDone = points.length === swept.words.length;
  const figure = (point: Point, wanted: string) => point.figures?.find((other) => other.key === wanted);
  const reference = base.find((other) => other.key === key);
  const label = reference?.label ?? key;
  const { x, lines } = useMemo(() => {
    const drawn = points.filter((point) => typeof figure(point, key)?.number === "number");
    const values = drawn.map((point) => figure(point, key)?.number ?? null);
    return {
      x: drawn.map((point) => Number(point.word)),
      lines: [{ label, colour: "--part-compute", isMarked: true, values }],
    };
  }, [points, key, label]);
  return (
    <section aria-label={`Sweep of ${swept.label}`} data-sweep={isDone ? "done" : "running"}>
      <div class="row">
        <h2>Sweep of {swept.label}</h2>
        <label>
          Figure{" "}
          <select value={key} onChange={(event) => setKey(event.currentTarget.value)}>
            {base.map((option) => (
              <option key={option.key} value={option.key}>
                {option.label}
              </option>
            ))}
          </select>
        </label>
        <span class="dim" role="status">
          {isDone ? "" : `${points.length} of ${swept.words.length}`}
        </span>
      </div>
      {x.length > 1 && (
        <Chart
          x={x}
          lines={lines}
          xLabel={swept.label}
          yLabel={[label, reference?.unit].filter(Boolean).join(", ")}
          label={`${label} by ${swept.label}`}
        />
      )}
      <Table
        columns={[swept.label, label, "to the base", "interval or share"]}
        rows={points.map((point) => {
          const shown = figure(point, key);
          if (!shown) return [point.word, "", "", point.error ? <Problem key={point.word} text={point.error} /> : ""];
          return [
            point.word,
            shown.text,
            <Difference key={point.word} figure={shown} base={reference} />,
            shown.remark,
          ];
        })}
        isNumber={[true, true, false, false]}
        label={`Sweep of ${swept.label}`}
      />
    </section>
  );
}
