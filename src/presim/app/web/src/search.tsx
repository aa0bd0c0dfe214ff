// The pane of a search: plans by time and memory, and the best as rows.
import { useCallback, useMemo, useState } from "preact/hooks";
import type { Values } from "./api";
import { Chart, type Mark } from "./chart";
import { bytes, number, time } from "./format";
import { Notes } from "./panes";
import { MOST_ROWS, Plans, type Trial, tokensPerGpu } from "./plans";
import { Problem } from "./ui";

interface SearchData {
  subject: string;
  strategy: string;
  complete: boolean;
  varied: string[];
  fates: Record<string, number>;
  best: Trial[];
  importance: Record<string, number>;
  notes: string[];
  points: Trial[];
}

export function SearchPane({ data, values, name }: { data: SearchData; values: Values; name: string }) {
  // Steps of other batches are compared by their tokens; without tokens, all points have steps of one job.
  const hasTokens = data.points.every((trial) => trial.figures.tokens_per_step !== null);
  const points = useMemo(() => {
    const speed = (trial: Trial) => (hasTokens ? tokensPerGpu(trial) : trial.figures.step_time_s);
    return [...data.points].sort((one, other) => speed(one) - speed(other));
  }, [data, hasTokens]);
  const [chosen, setChosen] = useState<number[]>([]); // ranks among the best
  const isChosen = useCallback(
    (trial: Trial) => chosen.some((rank) => data.best[rank]?.number === trial.number),
    [data, chosen],
  );
  const toggle = useCallback(
    (rank: number) =>
      setChosen((before) => (before.includes(rank) ? before.filter((other) => other !== rank) : [...before, rank])),
    [],
  );
  const choose = useCallback(
    (index: number) => {
      const rank = data.best.slice(0, MOST_ROWS).findIndex((trial) => trial.number === points[index]?.number);
      if (rank >= 0) toggle(rank);
    },
    [data, points, toggle],
  );
  const { x, lines } = useMemo(
    () => ({
      x: points.map((trial) => (hasTokens ? tokensPerGpu(trial) : trial.figures.step_time_s)),
      lines: [
        {
          label: "fits, GiB",
          colour: "--good",
          isPoints: true,
          values: points.map((trial) => (trial.figures.fits === false ? null : trial.figures.memory_bytes / 2 ** 30)),
        },
        {
          label: "does not fit, GiB",
          colour: "--bad",
          isPoints: true,
          values: points.map((trial) => (trial.figures.fits === false ? trial.figures.memory_bytes / 2 ** 30 : null)),
        },
        {
          label: "chosen, GiB",
          colour: "--accent",
          isPoints: true,
          isLarge: true,
          values: points.map((trial) => (isChosen(trial) ? trial.figures.memory_bytes / 2 ** 30 : null)),
        },
      ],
    }),
    [points, hasTokens, isChosen],
  );
  const marks = useMemo(() => limitsOf(points), [points]);
  const says = useCallback(
    (index: number) => {
      const trial = points[index];
      if (!trial) return "";
      const plan = Object.entries(trial.point).map(([name, value]) => `${name.replaceAll("_", " ")} ${value}`);
      return `${plan.join(", ")}: ${time(trial.figures.step_time_s)}, ${bytes(trial.figures.memory_bytes)}`;
    },
    [points],
  );
  const open = (trial: Trial) =>
    `#/ask/compose/${encodeURIComponent(JSON.stringify(planOf(trial, data.subject, values)))}`;
  const fates = Object.entries(data.fates).map(([fate, count]) => `${number(count)} ${fate}`);
  return (
    <>
      <p class="dim">
        {data.subject} · {data.strategy} · {fates.join(", ")}
      </p>
      {!data.complete && <Problem text="The search ended before all plans were tried." />}
      {points.length > 1 && (
        <Chart
          x={x}
          lines={lines}
          xLabel={hasTokens ? "tokens/s/GPU" : "step time, s"}
          marks={marks}
          describe={says}
          choose={choose}
          yLabel="memory, GiB"
          label="Plans by step time and memory"
        />
      )}
      {points.length === 0 && (
        <p class="empty">No plan was predicted: the report says why. Allow more values, nodes or recomputation.</p>
      )}
      {data.best.length > 0 && (
        <Plans best={data.best} varied={data.varied} name={name} open={open} chosen={chosen} toggle={toggle} />
      )}
      <Notes notes={data.notes} />
    </>
  );
}

// The values of the form that predicts a plan: those of the search, and the plan's own.
function planOf(trial: Trial, subject: string, values: Values): Values {
  const plan = Object.fromEntries(
    Object.entries(trial.point)
      .filter(([, value]) => value !== null && value !== undefined)
      .map(([name, value]) => [name, name === "passes" ? String(value).replaceAll("+", " ") : String(value)]),
  );
  const { shard, ...merged }: Values = { ...values, ...plan, model: values.words ?? subject, gpu: trial.figures.gpu };
  return shard && shard !== "0" ? { ...merged, shard } : merged; // 0 stands for no sharding by hybrid FSDP
}

// What a GPU holds, where all plans are for GPUs of the same size.
function limitsOf(points: Trial[]): Mark[] {
  const sizes = points.map(({ figures }) => Math.round((figures.memory_bytes + figures.headroom_bytes) / 2 ** 20));
  const [size] = sizes;
  if (!size || sizes.some((other) => other !== size)) return [];
  return [{ axis: "y", value: size / 2 ** 10, label: `GPU ${(size / 2 ** 10).toFixed(1)} GiB`, colour: "--dim" }];
}
