// The pane of deployments: throughput against speed for a user, and the simulated ones as rows.
import { useMemo } from "preact/hooks";
import { Chart } from "./chart";
import { number } from "./format";
import { Notes } from "./panes";
import { Table } from "./ui";

interface Deployment {
  deployment: string;
  gpus: number;
  tokens_per_s_per_gpu: number;
  tokens_per_s_per_user: number;
  ttft_ms: number;
  tpot_ms: number;
  request_rate?: number;
  meets_slo?: boolean;
}

interface DeploymentsData {
  slo: Record<string, number>;
  slo_statistics: Record<string, string>;
  front: Deployment[];
  simulated: Deployment[];
  best: Deployment | null;
  sentences: string[];
}

export function DeploymentsPane({ data }: { data: DeploymentsData }) {
  const { x, lines, says } = useMemo(() => {
    const points = [
      ...data.front.map((entry) => ({ entry, kind: "front" })),
      ...data.simulated.map((entry) => ({ entry, kind: entry.meets_slo ? "meets" : "misses" })),
    ].sort((one, other) => one.entry.tokens_per_s_per_user - other.entry.tokens_per_s_per_user);
    const says = (index: number) => {
      const entry = points[index]?.entry;
      return entry
        ? `${entry.deployment}: ${number(entry.tokens_per_s_per_gpu)} tokens/s/GPU, ${number(entry.tokens_per_s_per_user)} tokens/s for a user, TTFT ${number(entry.ttft_ms)} ms, TPOT ${number(entry.tpot_ms)} ms`
        : "";
    };
    const of = (kind: string) => points.map((point) => (point.kind === kind ? point.entry.tokens_per_s_per_gpu : null));
    return {
      says,
      x: points.map((point) => point.entry.tokens_per_s_per_user),
      lines: [
        { label: "estimated front", colour: "--part-other", isPoints: true, values: of("front") },
        { label: "simulated, meets the SLO", colour: "--good", isPoints: true, values: of("meets") },
        { label: "simulated, misses it", colour: "--bad", isPoints: true, values: of("misses") },
      ],
    };
  }, [data]);
  const limit = data.slo.tpot; // a user's tokens/s are its reciprocal; a limit of TTFT is no line here
  const isTail = limit !== undefined && (data.slo_statistics.tpot ?? "mean") !== "mean";
  const limits = Object.entries(data.slo).map(
    ([name, limit]) =>
      `${data.slo_statistics[name] ?? ""} ${name.replace("_ms", "").toUpperCase()} ${number(limit)} ms`,
  );
  return (
    <>
      <p class="dim">{limits.length ? `Limits: ${limits.join(", ")}` : "No limits of latency were set."}</p>
      {x.length > 1 && (
        <Chart
          x={x}
          lines={lines}
          marks={
            limit
              ? [
                  {
                    axis: "x",
                    value: 1000 / limit,
                    label: `SLO: ${data.slo_statistics.tpot ?? ""} TPOT ${number(limit)} ms`,
                    colour: "--bad",
                  },
                ]
              : []
          }
          describe={says}
          xLabel="tokens/s for a user"
          yLabel="tokens/s/GPU"
          label="Deployments by speed for a user and throughput"
        />
      )}
      {isTail && (
        <p class="dim prose">
          Speeds are means, and the limit is of the {data.slo_statistics.tpot}: a point right of the line may still miss
          it.
        </p>
      )}
      <h2>
        Simulated request by request <small>at the largest load within the limits, best first</small>
      </h2>
      <Table
        columns={["", "GPUs", "requests/s", "tokens/s/GPU", "tokens/s/user", "TTFT, ms", "TPOT, ms", ""]}
        rows={data.simulated.map((entry) => [
          entry.deployment,
          number(entry.gpus),
          entry.request_rate === undefined ? "" : number(entry.request_rate),
          number(entry.tokens_per_s_per_gpu),
          number(entry.tokens_per_s_per_user),
          number(entry.ttft_ms),
          number(entry.tpot_ms),
          entry.meets_slo ? (entry.deployment === data.best?.deployment ? "best" : "meets the SLO") : "misses the SLO",
        ])}
        isNumber={[false, true, true, true, true, true, true, false]}
        label="Simulated deployments"
      />
      <Notes notes={data.sentences} />
    </>
  );
}
