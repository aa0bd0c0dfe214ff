// A job: what runs, how long, its log, and the button that ends it.
import { useEffect, useState } from "preact/hooks";
import { cancel, getJob, type Job, remove } from "./api";
import { elapsed } from "./format";

const WORDS = {
  queued: "waits for a free core",
  running: "runs",
  done: "done",
  failed: "failed",
  cancelled: "cancelled",
};

export function JobCard({ job, mayChange, changed }: { job: Job; mayChange: boolean; changed: () => void }) {
  const [isOpen, setOpen] = useState(job.state === "failed");
  const isActive = job.state === "running" || job.state === "queued";
  const end = async () => {
    await (isActive ? cancel(job.name) : remove(job.name));
    changed();
  };
  return (
    <article class={`job ${job.state}`} data-job={job.name} data-state={job.state}>
      <div class="row">
        <b>{job.name}</b>
        <span role="status">
          {WORDS[job.state]}
          {job.seconds > 0 && ` · ${elapsed(job.seconds)}`}
          {job.exit_code ? ` · exit code ${job.exit_code}` : ""}
        </span>
        <span class="spring" />
        <button type="button" class="small" aria-expanded={isOpen} onClick={() => setOpen(!isOpen)}>
          Log
        </button>
        {mayChange && (
          <button type="button" class="small" onClick={end}>
            {isActive ? "Cancel" : "Remove"}
          </button>
        )}
      </div>
      {isActive && <progress aria-label={`${job.name} runs`} />}
      {job.progress && <p class="dim prose">{job.progress}</p>}
      {isOpen && <Log job={job} />}
    </article>
  );
}

function Log({ job }: { job: Job }) {
  const [log, setLog] = useState("");
  // Asked again while the job runs.
  useEffect(() => {
    getJob(job.name).then(
      (answer) => setLog(answer.log ?? ""),
      () => undefined,
    );
  }, [job.name, job.state, job.seconds]);
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls is reached by the keyboard
    <pre class="log" tabIndex={0}>
      {`$ ${job.command}\n${log}`}
    </pre>
  );
}
