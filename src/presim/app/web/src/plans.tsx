// The best plans of a search: rows that are opened, chosen, compared and exported.
import { bytes, change, number, saveCsv, time } from "./format";
import { Table } from "./ui";

export interface Trial {
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

export const MOST_ROWS = 50;
const words = (name: string) => name.replaceAll("_", " ");

export const tokensPerGpu = ({ figures }: Trial) => (figures.tokens_per_step ?? 0) / figures.step_time_s / figures.gpus;

interface Column {
  name: string;
  isNumber: boolean;
  text: (trial: Trial) => string;
  value: (trial: Trial) => string | number | null; // in the exported file
}

const FIGURES: Column[] = [
  {
    name: "GPUs",
    isNumber: true,
    text: ({ figures }) => `${number(figures.gpus)} x ${figures.gpu}`,
    value: ({ figures }) => figures.gpus,
  },
  {
    name: "step time",
    isNumber: true,
    text: ({ figures }) => time(figures.step_time_s),
    value: ({ figures }) => figures.step_time_s,
  },
  {
    name: "tokens/s/GPU",
    isNumber: true,
    text: (trial) => (trial.figures.tokens_per_step ? number(Math.round(tokensPerGpu(trial))) : ""),
    value: (trial) => (trial.figures.tokens_per_step ? tokensPerGpu(trial) : null),
  },
  {
    name: "memory",
    isNumber: true,
    text: ({ figures }) => bytes(figures.memory_bytes),
    value: ({ figures }) => figures.memory_bytes,
  },
  {
    name: "MFU",
    isNumber: true,
    text: ({ figures }) => (figures.mfu === null ? "" : `${(figures.mfu * 100).toFixed(1)} %`),
    value: ({ figures }) => figures.mfu,
  },
  {
    name: "limited by",
    isNumber: false,
    text: ({ figures }) => words(figures.limits[0] ?? ""),
    value: ({ figures }) => figures.limits[0] ?? "",
  },
];

export function Plans({
  best,
  varied,
  name,
  open,
  chosen,
  toggle,
}: {
  best: Trial[];
  varied: string[];
  name: string;
  open: (trial: Trial) => string;
  chosen: number[]; // ranks among the best
  toggle: (rank: number) => void;
}) {
  const rows = best.slice(0, MOST_ROWS);
  const same = varied.filter((knob) => new Set(rows.map((trial) => String(trial.point[knob]))).size === 1);
  const differing = varied.filter((knob) => !same.includes(knob));
  const knobs: Column[] = differing.map((knob) => ({
    name: words(knob),
    isNumber: true,
    text: (trial) => String(trial.point[knob] ?? ""),
    value: (trial) => String(trial.point[knob] ?? ""),
  }));
  const columns = [...knobs, ...FIGURES];
  const save = () => {
    const all = [...varied.map((knob) => ({ name: knob, value: (trial: Trial) => trial.point[knob] })), ...EXPORTED];
    saveCsv(name, [all.map((column) => column.name), ...best.map((trial) => all.map((column) => column.value(trial)))]);
  };
  return (
    <>
      <div class="row">
        <h2>
          Best plans <small>open one to predict or change it; choose several to compare them</small>
        </h2>
        <span class="spring" />
        <button type="button" class="small" onClick={save}>
          Export {number(best.length)} as CSV
        </button>
      </div>
      {rows[0] && same.length > 0 && (
        <p class="dim">All of them: {same.map((knob) => `${words(knob)} ${rows[0]?.point[knob]}`).join(", ")}</p>
      )}
      <Chosen plans={chosen.map((rank) => ({ rank, trial: rows[rank] as Trial }))} columns={columns} />
      <Table
        columns={["", "", ...columns.map((column) => column.name)]}
        rows={rows.map((trial, rank) => [
          <input
            key="choose"
            type="checkbox"
            aria-label={`Compare plan ${rank + 1}`}
            checked={chosen.includes(rank)}
            onChange={() => toggle(rank)}
          />,
          <a key="open" href={open(trial)}>
            plan {rank + 1}
          </a>,
          ...columns.map((column) => column.text(trial)),
        ])}
        isNumber={[false, false, ...columns.map((column) => column.isNumber)]}
        label="Best plans"
      />
    </>
  );
}

const EXPORTED = [
  { name: "gpu", value: (trial: Trial) => trial.figures.gpu as string | number | boolean | null | undefined },
  { name: "gpus", value: (trial: Trial) => trial.figures.gpus },
  { name: "step_time_s", value: (trial: Trial) => trial.figures.step_time_s },
  { name: "memory_bytes", value: (trial: Trial) => trial.figures.memory_bytes },
  { name: "mfu", value: (trial: Trial) => trial.figures.mfu },
  { name: "fits", value: (trial: Trial) => trial.figures.fits },
  { name: "limited_by", value: (trial: Trial) => trial.figures.limits[0] ?? "" },
];

// The chosen plans as columns, with the step time and memory of each to the first.
function Chosen({ plans, columns }: { plans: { rank: number; trial: Trial }[]; columns: Column[] }) {
  const base = plans[0]?.trial.figures;
  if (!base || plans.length < 2) return null;
  const differences = [
    ["step time to the first", ({ figures }: Trial) => change(figures.step_time_s, base.step_time_s)],
    ["memory to the first", ({ figures }: Trial) => change(figures.memory_bytes, base.memory_bytes)],
  ] as const;
  return (
    <section aria-label="Chosen plans" data-chosen={plans.length}>
      <h3>Compare {plans.length} plans</h3>
      <Table
        columns={["", ...plans.map(({ rank }) => `plan ${rank + 1}`)]}
        rows={[
          ...columns.map((column) => [column.name, ...plans.map(({ trial }) => column.text(trial))]),
          ...differences.map(([label, text]) => [
            label,
            ...plans.map(({ trial }, index) => (index ? text(trial) : "")),
          ]),
        ]}
        isNumber={[false, ...plans.map(() => true)]}
        label="Chosen plans"
      />
    </section>
  );
}
