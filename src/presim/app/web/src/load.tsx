// Load curves of a served model: latencies against the rate, with intervals, the limits of the SLO and the knee.
import { useEffect, useMemo, useState } from "preact/hooks";
import { change, type Figure, getPane, type Result } from "./api";
import { Chart, type Mark } from "./chart";
import { number, rates } from "./format";
import { Problem, Table, useAnswer } from "./ui";

interface Served {
  slo: Record<string, number>;
  slo_statistics: Record<string, string>;
  sustainable_request_rate: number | null;
  largest_request_rate_within_slo: number | null;
}

interface Point {
  rate: number;
  figures?: Figure[];
  error?: string;
}

const CURVES = [
  ["ttft", "Time to first token"],
  ["tpot", "Time per output token"],
] as const;
const STATISTICS = ["mean", "p99"];

export function LoadPane({ result }: { result: Result }) {
  const { answer: served, error } = useAnswer(() => getPane<Served>(result.name, "serving"), result.name);
  if (!served) return error ? <Problem text={error} /> : <p class="dim">Loading…</p>;
  return <Curves result={result} served={served} />;
}

function Curves({ result, served }: { result: Result; served: Served }) {
  const wanted = useMemo(() => rates(served.sustainable_request_rate, Number(result.values.rate)), [served, result]);
  const [points, setPoints] = useState<Point[]>([]);
  const limited = Object.keys(served.slo)[0];
  const first = limited ? (served.slo_statistics[limited] ?? "") : "";
  const [statistic, setStatistic] = useState(STATISTICS.includes(first) ? first : "mean");
  useEffect(() => {
    let isCurrent = true;
    const ask = async () => {
      for (const rate of wanted) {
        // Without the limits: they change no latency, and their knee takes longer to find than all rates.
        const values = { ...result.values, rate: String(rate), slo: "" };
        const point = await change(result.question, values).then(
          (summary): Point => ({ rate, figures: summary.figures }),
          (problem: Error): Point => ({ rate, error: problem.message }),
        );
        if (!isCurrent) return;
        setPoints((before) => [...before, point]);
      }
    };
    ask();
    return () => {
      isCurrent = false;
    };
  }, [wanted, result]);
  const isDone = points.length === wanted.length;
  return (
    <div data-load={isDone ? "done" : "running"}>
      <div class="row">
        <label>
          Latencies{" "}
          <select value={statistic} onChange={(event) => setStatistic(event.currentTarget.value)}>
            {STATISTICS.map((name) => (
              <option key={name}>{name}</option>
            ))}
          </select>
        </label>
        <span class="dim" role="status">
          {isDone ? `${points.length} rates` : `Predicting: ${points.length} of ${wanted.length} rates`}
        </span>
      </div>
      <p class="dim prose">{sentences(served)}</p>
      {CURVES.map(([key, label]) => (
        <section key={key} aria-label={label}>
          <h2>
            {label} <small>{statistic}, in ms; the band is the 80 % interval</small>
          </h2>
          <Curve points={points} name={`${statistic}_${key}_ms`} label={label} marks={marks(served, key, statistic)} />
        </section>
      ))}
      <h2>All rates</h2>
      <Table
        columns={["requests/s", ...CURVES.flatMap(([key]) => STATISTICS.map((name) => `${key.toUpperCase()} ${name}`))]}
        rows={points.map((point) => [
          number(point.rate),
          ...CURVES.flatMap(([key]) => STATISTICS.map((name) => shown(point, `${name}_${key}_ms`))),
        ])}
        isNumber={[true, true, true, true, true]}
        label="Latencies in ms by rate"
      />
      <Problem text={points.find((point) => point.error)?.error} />
    </div>
  );
}

// The largest rate that is sustained within the SLO; older results may name a larger one, which a short load can have.
function kneeOf({ sustainable_request_rate: sustainable, largest_request_rate_within_slo: within }: Served) {
  return within && sustainable ? Math.min(within, sustainable) : within;
}

function sentences(served: Served): string {
  const sustainable = served.sustainable_request_rate;
  const knee = kneeOf(served);
  return [
    sustainable
      ? `Sustainable: ${number(sustainable)} requests/s. Of more than that the queue grows for as long as they come.`
      : "",
    knee ? `Knee: ${number(knee)} requests/s, the largest sustainable rate within the SLO.` : "",
  ]
    .filter(Boolean)
    .join(" ");
}

const of = (point: Point, name: string) => point.figures?.find((figure) => figure.key === name);
const shown = (point: Point, name: string) => of(point, name)?.text.replace(" ms", "") ?? "";

function marks(served: Served, key: string, statistic: string): Mark[] {
  const limit = served.slo[key];
  const isLimited = limit !== undefined && (served.slo_statistics[key] ?? statistic) === statistic;
  const { sustainable_request_rate: sustainable } = served;
  const knee = kneeOf(served);
  return [
    ...(isLimited ? [{ axis: "y" as const, value: limit, label: `SLO ${number(limit)} ms`, colour: "--bad" }] : []),
    ...(knee ? [{ axis: "x" as const, value: knee, label: "knee", colour: "--good" }] : []),
    ...(sustainable ? [{ axis: "x" as const, value: sustainable, label: "sustainable", colour: "--dim" }] : []),
  ];
}

function Curve({ points, name, label, marks }: { points: Point[]; name: string; label: string; marks: Mark[] }) {
  const { x, lines } = useMemo(() => {
    const drawn = points.filter((point) => of(point, name));
    const values = (field: "number" | "low" | "high") => drawn.map((point) => of(point, name)?.[field] ?? null);
    return {
      x: drawn.map((point) => point.rate),
      lines: [
        { label: "high", colour: "--part-compute", isBand: true, values: values("high") },
        { label: "low", colour: "--part-compute", isBand: true, values: values("low") },
        { label: `${label}, ms`, colour: "--part-compute", isMarked: true, values: values("number") },
      ],
    };
  }, [points, name, label]);
  if (x.length < 2) return null;
  return (
    <Chart
      x={x}
      lines={lines}
      marks={marks}
      xLabel="requests per second"
      yLabel="ms"
      label={`${label} by rate`}
      isLog
    />
  );
}
