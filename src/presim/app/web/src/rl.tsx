// The pane of a step of reinforcement learning: pools of GPUs over time, with phases and the tail of rollouts.
import { number, time } from "./format";
import { Notes } from "./panes";
import { SecondsAxis, Table } from "./ui";

interface Span {
  pool: string;
  phase: string;
  step: number;
  start_s: number;
  end_s: number;
}

interface RlData {
  pools: { name: string; gpus: number; roles: string[]; plan: string }[];
  phases: { name: string; css_class: string }[];
  spans: Span[];
  tail_s: number | null;
  steady_from: number;
  shares: { pool: string; phase: string; seconds: number; share: number }[];
  memory: { pool: string; phase: string; parts: Record<string, number>; capacity_bytes: number }[];
  alternatives: {
    placement: string;
    step_time_s: number | null;
    tokens_per_s_per_gpu: number | null;
    rollout_idle_share: number | null;
    refusal: string;
  }[];
  notes: string[];
}

const GIB = 2 ** 30;
const LEAST_LABEL = 0.11; // share of the width from which on a phase has room for its name
const percent = (share: number) => `${(share * 100).toFixed(1)}%`;

export function RlPane({ data }: { data: RlData }) {
  const end = Math.max(...data.spans.map((span) => span.end_s), 1e-9);
  return (
    <>
      <h2>
        Pools over time <small>{data.tail_s ? "hatched: the tail, after half of the engines are done" : ""}</small>
      </h2>
      {data.pools.map((pool) => (
        <div key={pool.name} class="pool">
          <p>
            <b>{pool.name}</b>{" "}
            <span class="dim">
              {number(pool.gpus)} GPUs: {pool.roles.join(", ")} · {pool.plan}
            </span>
          </p>
          <Track data={data} pool={pool.name} end={end} />
        </div>
      ))}
      <SecondsAxis end={end} />
      <p class="legend">
        {data.phases.map((phase) => (
          <span key={phase.name}>
            <i class={phase.css_class} />
            {phase.name}
          </span>
        ))}
      </p>
      <h2>
        Phases{" "}
        <small>
          of an average step{data.steady_from ? `; the first ${data.steady_from}, in which pools fill, aside` : ""}
        </small>
      </h2>
      <Table
        columns={["pool", "phase", "time", "of the step"]}
        rows={data.shares.map((phase) => [phase.pool, phase.phase, time(phase.seconds), percent(phase.share)])}
        isNumber={[false, false, true, true]}
        label="Phases of a step"
      />
      <h2>Memory of a GPU in GiB</h2>
      <Table
        columns={["pool", "phase", "used", "of", "largest parts"]}
        rows={data.memory.map((phase) => [
          phase.pool,
          phase.phase,
          (Object.values(phase.parts).reduce((sum, size) => sum + size, 0) / GIB).toFixed(1),
          (phase.capacity_bytes / GIB).toFixed(1),
          largest(phase.parts),
        ])}
        isNumber={[false, false, true, true, false]}
        label="Memory of phases"
      />
      {data.alternatives.length > 0 && (
        <>
          <h2>Placements</h2>
          <Table
            columns={["", "step", "tokens/s/GPU", "engines idle", ""]}
            rows={data.alternatives.map((other) => [
              other.placement,
              other.step_time_s === null ? "" : time(other.step_time_s),
              other.tokens_per_s_per_gpu === null ? "" : number(other.tokens_per_s_per_gpu),
              other.rollout_idle_share === null ? "" : percent(other.rollout_idle_share),
              other.refusal,
            ])}
            isNumber={[false, true, true, true, false]}
            label="Placements"
          />
        </>
      )}
      <Notes notes={data.notes} />
    </>
  );
}

function Track({ data, pool, end }: { data: RlData; pool: string; end: number }) {
  const spans = data.spans.filter((span) => span.pool === pool && span.end_s > span.start_s);
  const css = new Map(data.phases.map((phase) => [phase.name, phase.css_class]));
  const text = spans.map((span) => `${span.phase} ${time(span.end_s - span.start_s)}`).join(", ");
  return (
    <div class="track" role="img" aria-label={`${pool}: ${text}`}>
      {spans.map((span) => {
        const length = span.end_s - span.start_s;
        const tail = span.phase === "rollout" && data.tail_s ? Math.min(data.tail_s / length, 1) : 0;
        const suffix = tail ? `, the last ${time(data.tail_s ?? 0)} of them the tail` : "";
        return (
          <span
            key={`${span.phase}-${span.start_s}`}
            class={css.get(span.phase)}
            style={{ left: `${(span.start_s / end) * 100}%`, width: `${(length / end) * 100}%` }}
            title={`${span.phase}, step ${span.step + 1}: ${time(length)}${suffix}`}
          >
            {length / end >= LEAST_LABEL ? <b>{span.phase}</b> : ""}
            {tail > 0 && <i class="tail" style={{ width: `${tail * 100}%` }} />}
          </span>
        );
      })}
    </div>
  );
}

function largest(parts: Record<string, number>): string {
  const sorted = Object.entries(parts).sort(([, one], [, other]) => other - one);
  return sorted
    .slice(0, 3)
    .map(([name, size]) => `${name} ${(size / GIB).toFixed(1)}`)
    .join(", ");
}
