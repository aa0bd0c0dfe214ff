// The panes of a result: each is drawn from the JSON of presim.view.
import { useMemo } from "preact/hooks";
import { type Block, getPane, type Limit, type Part, type Values } from "./api";
import { Chart, type Mark } from "./chart";
import { DeploymentsPane } from "./deployments";
import { bandwidth, bytes, number, time } from "./format";
import { RlPane } from "./rl";
import { SearchPane } from "./search";
import { ServingPane } from "./serving";
import { Bar, Blocks, Problem, Table, useAnswer } from "./ui";

const GIB = 2 ** 30;

export function Pane({ name, pane, values }: { name: string; pane: string; values: Values }) {
  const { answer, error } = useAnswer(() => getPane<never>(name, pane), `${name}/${pane}`);
  if (!answer) return error ? <Problem text={error} /> : <p class="dim">Loading…</p>;
  return <div data-ready={pane}>{draw(name, pane, answer, values)}</div>;
}

function draw(name: string, pane: string, data: never, values: Values) {
  switch (pane) {
    case "summary":
      return <SummaryPane data={data} />;
    case "memory":
      return <MemoryPane data={data} />;
    case "communication":
      return <CommunicationPane data={data} />;
    case "serving":
      return <ServingPane data={data} />;
    case "pools":
      return <RlPane data={data} />;
    case "deployments":
      return <DeploymentsPane data={data} name={name} />;
    case "search":
      return <SearchPane data={data} values={values} name={name} />;
    default:
      return <Blocks blocks={(data as { blocks: Block[] }).blocks} />;
  }
}

interface SummaryData {
  where: string;
  failure: string[];
  time: Part[];
  memory: Part[];
  memory_limit: Limit | null;
  limits: { name: string; seconds: number; statement: string; advice: string }[];
  notes: string[];
}

function SummaryPane({ data }: { data: SummaryData }) {
  return (
    <>
      <p class="dim">Figures of {data.where}</p>
      {data.failure.length > 0 && <Problem text={data.failure.join(": ")} />}
      {data.time.length > 0 && (
        <>
          <h2>Time of the step</h2>
          <Bar parts={data.time} />
        </>
      )}
      {data.memory.length > 0 && (
        <>
          <h2>Memory of the device in GiB</h2>
          <Bar parts={data.memory} limit={data.memory_limit} />
        </>
      )}
      {data.limits.length > 0 && (
        <>
          <h2>What limits the step</h2>
          <ol class="limits">
            {data.limits.map((limit) => (
              <li key={limit.name}>
                <b>{limit.name.replaceAll("_", " ")}</b> <span class="dim">{time(limit.seconds)}</span>
                <p>
                  {limit.statement} {limit.advice}
                </p>
              </li>
            ))}
          </ol>
        </>
      )}
      <Notes notes={data.notes} />
    </>
  );
}

export function Notes({ notes }: { notes: string[] }) {
  return notes.length ? (
    <>
      <h2>Notes</h2>
      <ul class="notes">
        {notes.map((note) => (
          <li key={note}>{note}</li>
        ))}
      </ul>
    </>
  ) : null;
}

interface MemoryData {
  time_s: number[];
  allocated: number[];
  reserved: number[];
  device: number;
  verdict: string;
  parts: Part[];
  parts_limit: Limit | null;
  by_category: { name: string; bytes: number; blocks: number }[];
  by_module: { name: string; bytes: number; blocks: number }[];
}

function MemoryPane({ data }: { data: MemoryData }) {
  const start = data.time_s[0] ?? 0;
  const { x, lines } = useMemo(
    () => ({
      x: data.time_s.map((moment) => moment - start),
      lines: [
        {
          label: "reserved",
          colour: "--part-reserved-unused",
          isFilled: true,
          values: data.reserved.map((size) => size / GIB),
        },
        {
          label: "allocated",
          colour: "--accent",
          isFilled: true,
          values: data.allocated.map((size) => size / GIB),
        },
      ],
    }),
    [data, start],
  );
  const marks = useMemo<Mark[]>(() => {
    const size = data.device / GIB;
    return [{ axis: "y", value: size, label: `the GPU's ${size.toFixed(1)} GiB`, colour: "--bad" }];
  }, [data]);
  const rows = (held: MemoryData["by_category"], words: (name: string) => string) =>
    held.map((item) => [words(item.name), bytes(item.bytes), number(item.blocks)]);
  return (
    <>
      <p class="lead">{data.verdict}</p>
      {x.length > 1 && (
        <Chart x={x} lines={lines} marks={marks} xLabel="seconds" yLabel="GiB" label="Memory over the step" />
      )}
      <h2>At the peak, in GiB</h2>
      <Bar parts={data.parts} limit={data.parts_limit} />
      <h2>By category</h2>
      <Table
        columns={["", "size", "blocks"]}
        rows={rows(data.by_category, (name) => name.replaceAll("_", " "))}
        isNumber={[false, true, true]}
        label="By category"
      />
      <h2>By module</h2>
      <Table
        columns={["", "size", "blocks"]}
        rows={rows(data.by_module, (name) => name)}
        isNumber={[false, true, true]}
        label="By module"
      />
    </>
  );
}

interface CommunicationData {
  collectives: {
    kind: string;
    group: string;
    group_size: number;
    count: number;
    bytes: number;
    seconds: number;
    exposed_s: number;
    algorithm_GBps: number | null;
  }[];
  messages: [number, number, number][];
}

function CommunicationPane({ data }: { data: CommunicationData }) {
  if (!data.collectives.length) return <p class="lead">The step has no collectives.</p>;
  const rows = data.collectives.map((item) => [
    `${item.kind} · ${item.group} (${item.group_size})`,
    number(item.count),
    bytes(item.bytes),
    time(item.seconds),
    time(item.exposed_s),
    bandwidth(item.algorithm_GBps),
  ]);
  return (
    <>
      <h2>Collectives of the step</h2>
      <Table
        columns={["", "calls", "bytes", "time", "exposed", "GB/s"]}
        rows={rows}
        isNumber={[false, true, true, true, true, true]}
        label="Collectives of the step"
      />
    </>
  );
}
