// The project: questions to ask, jobs that run, results to open, compare and delete.
import { useContext, useEffect, useState } from "preact/hooks";
import {
  getProject,
  type Project,
  type Row,
  remove,
  simulateAddress,
  timelinesAddress,
  upload,
  watchProject,
} from "./api";
import { JobCard } from "./job";
import { MayChange, Problem } from "./ui";

export function ProjectPage() {
  const [project, setProject] = useState<Project>();
  const [error, setError] = useState("");
  const [selected, setSelected] = useState<string[]>([]);
  useEffect(
    () =>
      watchProject(
        (answer) => {
          setProject(answer);
          setError("");
        },
        () =>
          setError("presim does not answer: is `presim app` still running, and is the token in the address its own?"),
      ),
    [],
  );
  const reload = async () => setProject(await getProject());
  if (!project) return <Problem text={error} />;
  const toggle = (name: string) =>
    setSelected((before) => (before.includes(name) ? before.filter((other) => other !== name) : [...before, name]));
  const drop = async (name: string) => {
    await remove(name);
    setSelected((before) => before.filter((other) => other !== name));
    await reload();
  };
  return (
    <div data-ready="project">
      <Problem text={error} />
      <h1>{project.may_change ? "What would you like to know?" : "Results of a team"}</h1>
      {!project.may_change && <p class="lead">This link only shows: jobs are started and deleted by others.</p>}
      {project.may_change && (
        <ul class="questions">
          {project.questions.map((question) => (
            <li key={question.name}>
              <a href={`#/ask/${question.name}`}>
                <b>{question.title}</b>
                <span>{question.summary}</span>
              </a>
            </li>
          ))}
        </ul>
      )}
      {project.jobs.length > 0 && (
        <section aria-label="Jobs">
          <h2>
            Jobs <small>at most {project.processes} at a time</small>
          </h2>
          <div class="jobs">
            {project.jobs.map((job) => (
              <JobCard key={job.name} job={job} mayChange={project.may_change} changed={() => reload()} />
            ))}
          </div>
        </section>
      )}
      {project.saved_jobs.length > 0 && (
        <section aria-label="Saved jobs">
          <h2>
            Saved jobs <small>folders that --save or --out of a verb wrote</small>
          </h2>
          <ul class="results">
            {project.saved_jobs.map(({ name, problem }) => (
              <li key={name} class="saved">
                <b>{name}</b>
                {problem ? (
                  <span class="problem">{problem}</span>
                ) : (
                  <>
                    <a class="button small" href={timelinesAddress(name)} target="_blank" rel="noreferrer">
                      Timelines
                    </a>
                    {project.may_change && (
                      <a class="button small" href={simulateAddress(name)}>
                        Simulate
                      </a>
                    )}
                  </>
                )}
              </li>
            ))}
          </ul>
        </section>
      )}
      <section aria-label="Results">
        <div class="row">
          <h2>Results</h2>
          <span class="spring" />
          <a
            class="button"
            aria-disabled={selected.length < 2}
            href={selected.length < 2 ? undefined : `#/compare/${selected.map(encodeURIComponent).join(",")}`}
          >
            Compare {selected.length > 1 ? selected.length : "selected"}
          </a>
          {project.may_change && <Upload done={() => reload()} />}
        </div>
        {project.results.length ? (
          <Results rows={project.results} selected={selected} toggle={toggle} drop={drop} />
        ) : (
          <p class="empty">
            No results yet. Ask a question above, or drop files here that <code>--json</code> of any verb wrote, a
            model's <code>config.json</code>, a profile or a saved job: they are copied into{" "}
            <code>{project.folder}</code>.
          </p>
        )}
      </section>
    </div>
  );
}

function Results({
  rows,
  selected,
  toggle,
  drop,
}: {
  rows: Row[];
  selected: string[];
  toggle: (name: string) => void;
  drop: (name: string) => void;
}) {
  const mayChange = useContext(MayChange);
  return (
    <ul class="results">
      {rows.map((row) => (
        <li key={row.name} data-result={row.name}>
          <input
            type="checkbox"
            aria-label={`Compare ${row.name}`}
            disabled={Boolean(row.problem)}
            checked={selected.includes(row.name)}
            onChange={() => toggle(row.name)}
          />
          <div class="about">
            <a href={`#/result/${encodeURIComponent(row.name)}`}>{row.name}</a>
            <p>{row.problem || row.summary.subject || row.kind}</p>
            <p class="dim">{[row.summary.cluster, row.date].filter(Boolean).join(" · ")}</p>
            {row.command && <code class="dim command">{row.command}</code>}
            {row.summary.warning && <p class="warning">{row.summary.warning}</p>}
          </div>
          <dl class="brief">
            {row.summary.figures.slice(0, 3).map((figure) => (
              <div key={figure.key}>
                <dt>{figure.label}</dt>
                <dd>{figure.text}</dd>
              </div>
            ))}
          </dl>
          {mayChange && (
            <button type="button" class="small quiet" aria-label={`Delete ${row.name}`} onClick={() => drop(row.name)}>
              Delete
            </button>
          )}
        </li>
      ))}
    </ul>
  );
}

function Upload({ done }: { done: () => void }) {
  const [error, setError] = useState("");
  const take = async (files: FileList | null) => {
    for (const file of files ?? []) {
      try {
        await upload(file.name, file);
        setError("");
      } catch (problem) {
        setError((problem as Error).message);
      }
    }
    done();
  };
  return (
    <>
      <label class="button">
        Add files…
        <input type="file" multiple class="unseen" onChange={(event) => take(event.currentTarget.files)} />
      </label>
      <Problem text={error} />
    </>
  );
}
