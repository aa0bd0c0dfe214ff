// The pane of a served load: latencies with their intervals, memory, the engine, cost.
import { number } from "./format";
import { Notes } from "./panes";
import { type LoadOverTime, OverTime, Requests, type RequestTimes } from "./requests";
import { Bar, Problem, Table } from "./ui";

interface ServingData {
  deployment: Record<string, unknown> & { limits: Record<string, unknown>; engine_defaults?: { text: string } };
  workload: { name: string };
  figures: Record<string, number | null>;
  slo: Record<string, number>;
  slo_statistics: Record<string, string>;
  intervals_80: Record<string, [number, number]>;
  memory: Record<string, number>;
  engine: Record<string, number | null>;
  notes: string[];
  not_modelled: string[];
  partial: string;
  over_time: LoadOverTime | null;
  request_times: RequestTimes | null;
}

const LATENCIES = [
  ["ttft", "Time to first token"],
  ["tpot", "Time per output token"],
  ["itl", "Between tokens"],
  ["e2el", "End to end"],
] as const;
const STATISTICS = ["mean", "median", "p90", "p99"] as const;
const PARTS = [
  ["weights", "weights_GiB", "w"],
  ["activations", "activations_GiB", "a"],
  ["others", "others_GiB", "o"],
  ["KV cache", "kv_cache_GiB", "k"],
] as const;
const SHARES = new Set([
  "device_busy",
  "max_kv_use",
  "mean_kv_use",
  "prefix_cache_hit_rate",
  "time_in_steps_with_prefill",
]);

export function ServingPane({ data }: { data: ServingData }) {
  const cell = (key: string) => {
    const value = data.figures[key];
    const interval = data.intervals_80[key];
    if (value === null || value === undefined) return "";
    return (
      <>
        {number(value)}
        {interval && <small> {interval.map(number).join(" to ")}</small>}
      </>
    );
  };
  const sizes = PARTS.map(([name, key, letter]) => ({ name, letter, size: data.memory[key] ?? 0 }));
  const total = sizes.reduce((sum, part) => sum + part.size, 0) || 1;
  const parts = sizes.map(({ name, letter, size }) => ({
    name,
    letter,
    figure: size.toFixed(1),
    share: size / total,
    css_class: `part-${name.toLowerCase().replace(" ", "-")}`,
  }));
  const limits = Object.entries(data.slo ?? {}).map(([metric, limit]) => {
    const statistic = data.slo_statistics?.[metric] ?? "p99";
    const value = data.figures[`${statistic}_${metric}_ms`];
    const isKnown = value !== null && value !== undefined;
    return [
      `${statistic} ${metric.toUpperCase()}`,
      number(limit),
      isKnown ? number(value) : "\u2013",
      isKnown ? <b class={value <= limit ? "better" : "worse"}>{value <= limit ? "within" : "beyond"}</b> : "",
    ];
  });
  const engine = Object.entries(data.engine).filter(([, value]) => typeof value === "number");
  return (
    <>
      <Problem text={data.partial} />
      <p class="dim">{data.workload.name}</p>
      <h2>
        Latencies in ms <small>80 % intervals beside them</small>
      </h2>
      <Table
        columns={["", ...STATISTICS]}
        rows={LATENCIES.map(([key, label]) => [label, ...STATISTICS.map((level) => cell(`${level}_${key}_ms`))])}
        isNumber={[false, true, true, true, true]}
        label="Latencies"
      />
      {limits.length > 0 && (
        <Table
          columns={["limit", "ms", "predicted", ""]}
          rows={limits}
          isNumber={[false, true, true, false]}
          label="Limits of latency"
        />
      )}
      {data.over_time && <OverTime load={data.over_time} />}
      {data.request_times && <Requests times={data.request_times} />}
      <h2>Memory of the fullest GPU in GiB</h2>
      <Bar parts={parts} />
      <h2>The engine</h2>
      {data.deployment.engine_defaults?.text && <p class="prose">{data.deployment.engine_defaults.text}</p>}
      <Table
        columns={["", ""]}
        rows={engine.map(([name, value]) => [
          name.replaceAll("_", " ").replace("kv", "KV"),
          SHARES.has(name) ? `${((value ?? 0) * 100).toFixed(1)} %` : number(value ?? 0),
        ])}
        isNumber={[false, true]}
        label="The engine"
      />
      <Notes notes={[...data.notes, ...data.not_modelled]} />
    </>
  );
}
