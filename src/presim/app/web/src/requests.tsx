// A run of the engines over time: batch and queue, KV cache, time of a step, and the times of single requests.
import { useMemo } from "preact/hooks";
import { Chart } from "./chart";
import { time } from "./format";
import { SecondsAxis } from "./ui";

export interface LoadOverTime {
  time_s: number[];
  running: number[];
  waiting: number[];
  kv_use: number[];
  step_ms: (number | null)[];
}

export interface RequestTimes {
  of: number;
  sent_s: (number | null)[];
  scheduled_s: (number | null)[];
  first_token_s: (number | null)[];
  last_token_s: (number | null)[];
}

const PHASES = ["queued", "prefill", "decode"] as const;
const HEIGHT = 280; // pixels of all requests

export function OverTime({ load }: { load: LoadOverTime }) {
  const lines = useMemo(
    () => ({
      batch: [
        { label: "in batches", colour: "--accent", isFilled: true, values: load.running },
        { label: "waiting", colour: "--part-queued", isDashed: true, values: load.waiting },
      ],
      cache: [
        {
          label: "in use",
          colour: "--part-kv-cache",
          isFilled: true,
          values: load.kv_use.map((share) => share * 100),
        },
      ],
      steps: [{ label: "a step", colour: "--accent", values: load.step_ms }],
    }),
    [load],
  );
  const peak = (values: number[]) => Math.max(...values);
  return (
    <>
      <h2>
        Batch and queue over time <small>requests of all engines</small>
      </h2>
      <Chart
        x={load.time_s}
        lines={lines.batch}
        xLabel="seconds"
        yLabel="requests"
        label={`Batch and queue over time: at most ${peak(load.running)} in batches and ${peak(load.waiting)} waiting`}
      />
      <h2>KV cache over time</h2>
      <Chart
        x={load.time_s}
        lines={lines.cache}
        xLabel="seconds"
        yLabel="% of the blocks"
        label={`KV cache over time: at most ${(peak(load.kv_use) * 100).toFixed(1)} % of the blocks`}
      />
      <h2>
        Time of a step <small>mean of the engines that have one</small>
      </h2>
      <Chart x={load.time_s} lines={lines.steps} xLabel="seconds" yLabel="ms" label="Time of a step over time" />
    </>
  );
}

// A line for each request from its arrival to its last token, the first that was sent on top.
export function Requests({ times }: { times: RequestTimes }) {
  const count = times.sent_s.length;
  const end = Math.max(...times.last_token_s.map((moment) => moment ?? 0), 1e-9);
  if (!count) return null;
  return (
    <>
      <h2>
        Requests over time{" "}
        <small>{count < times.of ? `${count} of ${times.of}, evenly spread` : `all ${count}`}, by arrival</small>
      </h2>
      <svg
        class="requests"
        viewBox={`0 0 ${end} ${count}`}
        preserveAspectRatio="none"
        style={{ height: `${HEIGHT}px` }}
        role="img"
        aria-label={`Times of ${count} requests within ${time(end)}`}
      >
        {times.sent_s.map((_, index) => (
          <Request key={index} times={times} index={index} />
        ))}
      </svg>
      <SecondsAxis end={end} />
      <p class="legend">
        {PHASES.map((phase) => (
          <span key={phase}>
            <i class={`part-${phase}`} />
            {phase}
          </span>
        ))}
      </p>
    </>
  );
}

function Request({ times, index }: { times: RequestTimes; index: number }) {
  const moments = [times.sent_s, times.scheduled_s, times.first_token_s, times.last_token_s].map(
    (column) => column[index] ?? null,
  );
  const spans = PHASES.map((phase, place) => ({
    phase,
    start: moments[place] ?? null,
    end: moments[place + 1] ?? null,
  }));
  const text = spans.map(({ phase, start, end }) =>
    start === null || end === null ? `never ${phase}` : `${phase} ${time(end - start)}`,
  );
  return (
    <g>
      <title>{text.join(", ")}</title>
      {spans.map(
        ({ phase, start, end }) =>
          start !== null &&
          end !== null &&
          end > start && (
            <rect
              key={phase}
              x={start}
              y={index + 0.08}
              width={end - start}
              height={0.84}
              style={{ fill: `var(--part-${phase})` }}
            />
          ),
      )}
    </g>
  );
}
