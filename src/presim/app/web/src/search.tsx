// The pane of a search: plans by time and memory, and the best as rows that open their own form.
import { useMemo } from "preact/hooks";
import type { Values } from "./api";
import { Chart, type Mark } from "./chart";
import { bytes, number, time } from "./format";
import { Notes } from "./panes";
import { Problem, Table } from "./ui";

const MOST_ROWS = 50;

interface Trial {
  number: number;
  point: Record<string, string | number | boolean | null>;
  figures: {
    gpu: string;
    gpus: number;
    step_time_s: number;
    memory_bytes: number;
    mfu: number | null;
    fits: boolean | null;
    headroom_bytes: number;
    tokens_per_step: number | null;
    limits: string[];
  };
}

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

export function SearchPane({ data, values }: { data: SearchData; values: Values }) {
  // Steps of other batches are compared by their tokens; without tokens, all points have steps of one job.
  const hasTokens = data.points.every((trial) => trial.figures.tokens_per_step !== null);
  const points = useMemo(() => {
    const speed = (trial: Trial) => (hasTokens ? tokensPerGpu(trial) : trial.figures.step_time_s);
    return [...data.points].sort((one, other) => speed(one) - speed(other));
  }, [data, hasTokens]);
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
      ],
    }),
    [points, hasTokens],
  );
  const marks = useMemo(() => limitsOf(points), [points]);
  const says = (index: number) => {
    const trial = points[index];
    if (!trial) return "";
    const plan = Object.entries(trial.point).map(([name, value]) => `${name.replaceAll("_", " ")} ${value}`);
    return `${plan.join(", ")}: ${time(trial.figures.step_time_s)}, ${bytes(trial.figures.memory_bytes)}`;
  };
  const open = (trial: Trial) =>
    `#/ask/compose/${encodeURIComponent(JSON.stringify(planOf(trial, data.subject, values)))}`;
  const rows = data.best.slice(0, MOST_ROWS);
  const same = data.varied.filter((name) => new Set(rows.map((trial) => String(trial.point[name]))).size === 1);
  const varied = data.varied.filter((name) => !same.includes(name));
  const words = (name: string) => name.replaceAll("_", " ");
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
          yLabel="memory, GiB"
          label="Plans by step time and memory"
        />
      )}
      <h2>
        Best plans <small>open one to predict or change it</small>
      </h2>
      {rows[0] && same.length > 0 && (
        <p class="dim">All of them: {same.map((name) => `${words(name)} ${rows[0]?.point[name]}`).join(", ")}</p>
      )}
      <Table
        columns={["", ...varied.map(words), "GPUs", "step time", "memory", "MFU", "limited by"]}
        rows={rows.map((trial, rank) => [
          <a key={trial.number} href={open(trial)}>
            plan {rank + 1}
          </a>,
          ...varied.map((name) => String(trial.point[name] ?? "")),
          `${number(trial.figures.gpus)} x ${trial.figures.gpu}`,
          time(trial.figures.step_time_s),
          bytes(trial.figures.memory_bytes),
          trial.figures.mfu === null ? "" : `${(trial.figures.mfu * 100).toFixed(1)} %`,
          words(trial.figures.limits[0] ?? ""),
        ])}
        isNumber={[false, ...varied.map(() => true), true, true, true, true, false]}
        label="Best plans"
      />
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

const tokensPerGpu = ({ figures }: Trial) => (figures.tokens_per_step ?? 0) / figures.step_time_s / figures.gpus;

// What a GPU holds, where all plans are for GPUs of the same size.
function limitsOf(points: Trial[]): Mark[] {
  const sizes = points.map(({ figures }) => Math.round((figures.memory_bytes + figures.headroom_bytes) / 2 ** 20));
  const [size] = sizes;
  if (!size || sizes.some((other) => other !== size)) return [];
  return [{ axis: "y", value: size / 2 ** 10, label: `GPU ${(size / 2 ** 10).toFixed(1)} GiB`, colour: "--dim" }];
}
