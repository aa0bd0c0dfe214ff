// The pane of deployments: throughput against a latency, and the simulated ones as rows that are chosen and compared.
import type { ComponentChildren } from "preact";
import { useCallback, useMemo, useState } from "preact/hooks";
import { Chart, type Mark } from "./chart";
import { change, number, saveCsv } from "./format";
import { Notes } from "./panes";
import { Problem, Table } from "./ui";

interface Deployment {
  deployment: string;
  gpus: number;
  tokens_per_s_per_gpu: number;
  tokens_per_s_per_user: number;
  ttft_ms: number;
  tpot_ms: number;
  request_rate?: number | null;
  meets_slo?: boolean;
}

interface DeploymentsData {
  slo: Record<string, number>;
  slo_statistics: Record<string, string>;
  front: Deployment[];
  simulated: Deployment[];
  best: Deployment | null;
  problem: string;
  sentences: string[];
}

// What lies on the x axis, and the metric whose limit is a line there.
const AXES = [
  { metric: "tpot", label: "tokens/s for a user", of: (entry: Deployment) => entry.tokens_per_s_per_user },
  { metric: "ttft", label: "TTFT, ms", of: (entry: Deployment) => entry.ttft_ms },
] as const;
type Axis = (typeof AXES)[number];

interface Column {
  name: string;
  key: keyof Deployment;
  isCompared?: boolean;
}

const COLUMNS: Column[] = [
  { name: "GPUs", key: "gpus" },
  { name: "requests/s", key: "request_rate" },
  { name: "tokens/s/GPU", key: "tokens_per_s_per_gpu", isCompared: true },
  { name: "tokens/s/user", key: "tokens_per_s_per_user", isCompared: true },
  { name: "TTFT, ms", key: "ttft_ms", isCompared: true },
  { name: "TPOT, ms", key: "tpot_ms", isCompared: true },
];
const text = (entry: Deployment, key: keyof Deployment) =>
  typeof entry[key] === "number" ? number(entry[key] as number) : "";

function says(entry: Deployment): string {
  const speeds = `${text(entry, "tokens_per_s_per_gpu")} tokens/s/GPU, ${text(entry, "tokens_per_s_per_user")} tokens/s for a user`;
  return `${entry.deployment}: ${speeds}, TTFT ${text(entry, "ttft_ms")} ms, TPOT ${text(entry, "tpot_ms")} ms`;
}

export function DeploymentsPane({ data, name }: { data: DeploymentsData; name: string }) {
  const [axis, setAxis] = useState<Axis>(AXES[0]);
  const [chosen, setChosen] = useState<number[]>([]); // indices of simulated
  const toggle = useCallback(
    (row: number) =>
      setChosen((before) => (before.includes(row) ? before.filter((other) => other !== row) : [...before, row])),
    [],
  );
  const { x, points, lines } = useMemo(() => drawn(data, axis, chosen), [data, axis, chosen]);
  const marks = useMemo(() => limitOf(data, axis), [data, axis]);
  const describe = useCallback((index: number) => (points[index] ? says(points[index].entry) : ""), [points]);
  const choose = useCallback(
    (index: number) => {
      const row = points[index]?.row;
      if (row !== undefined) toggle(row);
    },
    [points, toggle],
  );
  const isTail = marks.length > 0 && (data.slo_statistics[axis.metric] ?? "mean") !== "mean";
  const limits = Object.entries(data.slo).map(
    ([name, limit]) => `${data.slo_statistics[name] ?? ""} ${name.toUpperCase()} ${number(limit)} ms`,
  );
  const verdict = (entry: Deployment) =>
    entry.meets_slo ? (entry.deployment === data.best?.deployment ? "best" : "meets the SLO") : "misses the SLO";
  const save = () =>
    saveCsv(name, [
      ["deployment", ...COLUMNS.map(({ key }) => key), "meets_slo"],
      ...data.simulated.map((entry) => [
        entry.deployment,
        ...COLUMNS.map(({ key }) => entry[key] ?? null),
        entry.meets_slo ?? false,
      ]),
    ]);
  return (
    <>
      <Problem text={data.problem} />
      <div class="row">
        <span class="dim">{limits.length ? `Limits: ${limits.join(", ")}` : "No limits of latency were set."}</span>
        <span class="spring" />
        {x.length > 1 && (
          <label class="dim">
            Across{" "}
            <select
              value={axis.metric}
              onChange={(event) => setAxis(AXES.find(({ metric }) => metric === event.currentTarget.value) ?? AXES[0])}
            >
              {AXES.map(({ metric, label }) => (
                <option key={metric} value={metric}>
                  {label}
                </option>
              ))}
            </select>
          </label>
        )}
      </div>
      {x.length > 1 && (
        <Chart
          x={x}
          lines={lines}
          marks={marks}
          describe={describe}
          choose={choose}
          xLabel={axis.label}
          yLabel="tokens/s/GPU"
          label={`Deployments by ${axis.label} and throughput`}
        />
      )}
      {isTail && (
        <p class="dim prose">
          Points are means, and the limit is of the {data.slo_statistics[axis.metric]}: a point on its good side may
          still miss it.
        </p>
      )}
      <div class="row">
        <h2>
          Simulated request by request{" "}
          <small>at the largest load within the limits, best first; choose several to compare them</small>
        </h2>
        <span class="spring" />
        {data.simulated.length > 0 && (
          <button type="button" class="small" onClick={save}>
            Export {number(data.simulated.length)} as CSV
          </button>
        )}
      </div>
      <Chosen entries={chosen.map((row) => data.simulated[row]).filter((entry) => entry !== undefined)} />
      <Table
        columns={["", "", ...COLUMNS.map((column) => column.name), ""]}
        rows={data.simulated.map((entry, row): ComponentChildren[] => [
          <input
            key="choose"
            type="checkbox"
            aria-label={`Compare ${entry.deployment}`}
            checked={chosen.includes(row)}
            onChange={() => toggle(row)}
          />,
          <span key="name" class="name">
            {entry.deployment}
          </span>,
          ...COLUMNS.map(({ key }) => text(entry, key)),
          verdict(entry),
        ])}
        isNumber={[false, false, ...COLUMNS.map(() => true), false]}
        label="Simulated deployments"
      />
      <Notes notes={data.sentences} />
    </>
  );
}

// Points in the order of the axis; the rows that are chosen are drawn once more.
function drawn(data: DeploymentsData, axis: Axis, chosen: number[]) {
  const points = [
    ...data.front.map((entry) => ({ entry, kind: "front", row: undefined as number | undefined })),
    ...data.simulated.map((entry, row) => ({ entry, kind: entry.meets_slo ? "meets" : "misses", row })),
  ]
    .filter(({ entry }) => Number.isFinite(axis.of(entry)))
    .sort((one, other) => axis.of(one.entry) - axis.of(other.entry));
  const of = (isShown: (point: (typeof points)[number]) => boolean) =>
    points.map((point) => (isShown(point) ? point.entry.tokens_per_s_per_gpu : null));
  const line = (label: string, colour: string, kind: string) => ({
    label,
    colour,
    isPoints: true,
    values: of((point) => point.kind === kind),
  });
  return {
    points,
    x: points.map(({ entry }) => axis.of(entry)),
    lines: [
      line("estimated front", "--part-other", "front"),
      line("simulated, meets the SLO", "--good", "meets"),
      line("simulated, misses it", "--bad", "misses"),
      {
        label: "chosen",
        colour: "--accent",
        isPoints: true,
        isLarge: true,
        values: of(({ row }) => row !== undefined && chosen.includes(row)),
      },
    ],
  };
}

// A limit of time is a line; a user's tokens/s are the reciprocal of TPOT.
function limitOf({ slo, slo_statistics }: DeploymentsData, { metric }: Axis): Mark[] {
  const limit = slo[metric];
  if (limit === undefined) return [];
  const label = `SLO: ${slo_statistics[metric] ?? ""} ${metric.toUpperCase()} ${number(limit)} ms`;
  return [{ axis: "x", value: metric === "tpot" ? 1000 / limit : limit, label, colour: "--bad" }];
}

// The chosen deployments as columns, with the change of each figure to the first.
function Chosen({ entries }: { entries: Deployment[] }) {
  const [base] = entries;
  if (!base || entries.length < 2) return null;
  const cell = (entry: Deployment, { key, isCompared }: Column) => {
    const [value, reference] = [entry[key], base[key]];
    const isChanged = isCompared && entry !== base && typeof value === "number" && typeof reference === "number";
    return isChanged ? `${number(value)} (${change(value, reference)})` : text(entry, key);
  };
  return (
    <section aria-label="Chosen deployments" data-chosen={entries.length}>
      <h3>Compare {entries.length} deployments</h3>
      <Table
        columns={["", ...entries.map((entry) => entry.deployment)]}
        rows={COLUMNS.map((column) => [column.name, ...entries.map((entry) => cell(entry, column))])}
        isNumber={[false, ...entries.map(() => true)]}
        label="Chosen deployments"
      />
    </section>
  );
}
