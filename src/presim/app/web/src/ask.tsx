// A question's form, with the command and the Python call that it stands for.
import { useContext, useEffect, useRef, useState } from "preact/hooks";
import {
  type Checked,
  cancel,
  check,
  type Form,
  getForm,
  getJob,
  getResult,
  type Job,
  Refused,
  remove,
  start,
  type Values,
} from "./api";
import { draftOf, keepDraft } from "./draft";
import { onDropped } from "./drop";
import { fieldFor } from "./drop_field";
import { FieldOf } from "./field";
import { elapsed, labelled } from "./format";
import { Copied, MayChange, Problem } from "./ui";

const PAUSE_MS = 150; // of typing, before the command line is asked
const POLL_MS = 250;

export function AskPage({ question, from }: { question: string; from: string }) {
  const [form, setForm] = useState<Form>();
  const [values, setValues] = useState<Values>({});
  const [error, setError] = useState("");
  useEffect(() => {
    const load = async () => {
      const answer = await getForm(question);
      const draft = draftOf(location.hash);
      if (draft) setValues(draft.values);
      else if (from.startsWith("{")) setValues(planned(answer, JSON.parse(from)));
      else setValues(from ? (await getResult(from)).values : answer.start);
      setForm(answer);
    };
    load().catch((problem: Error) => setError(problem.message));
  }, [question, from]);
  if (!form) return <Problem text={error} />;
  return <Asked form={form} values={values} setValues={setValues} />;
}

// The values of a plan for a form: only those that it has, with pairs of flags as the flag that is meant.
function planned(form: Form, plan: Values): Values {
  const values: Values = {};
  for (const field of form.groups.flatMap((group) => group.fields).concat(form.other_fields)) {
    const value = plan[field.name];
    if (value === undefined) continue;
    const flag = value === "true" ? field.flag : value === "false" ? field.opposite_flag : String(value);
    values[field.name] = field.opposite_flag ? flag : value;
  }
  return values;
}

function Asked({
  form,
  values,
  setValues,
}: {
  form: Form;
  values: Values;
  setValues: (change: (before: Values) => Values) => void;
}) {
  const [checked, setChecked] = useState<Checked>({
    command: "",
    python: "",
    errors: {},
    cluster: { markup: "", facts: [] },
  });
  const [touched, setTouched] = useState<Set<string>>(new Set());
  const [refused, setRefused] = useState<Record<string, string>>({});
  const [job, setJob] = useState<Job>();
  const [silence, setSilence] = useState("");
  const mayChange = useContext(MayChange);
  const latest = useRef(0);
  useEffect(() => keepDraft(location.hash, { values, job: job?.name }), [values, job]);
  useEffect(() => {
    const name = draftOf(location.hash)?.job;
    if (name) getJob(name).then(setJob, () => undefined); // it runs on while the page is loaded again
  }, []);
  useEffect(() => {
    const number = ++latest.current;
    const timer = setTimeout(async () => {
      const answer = await check(form.name, values).catch((problem: Error) => problem);
      if (number !== latest.current) return;
      const isRefused = answer instanceof Error;
      setSilence(isRefused ? answer.message : "");
      if (!isRefused) setChecked(answer);
    }, PAUSE_MS);
    return () => clearTimeout(timer);
  }, [form.name, values]);
  const set = (name: string, value: string | boolean) => {
    setTouched((before) => new Set(before).add(name));
    setRefused({});
    setValues((before) => ({ ...before, [name]: value })); // two changes may come before the page is drawn again
  };
  const shown = form.groups.flatMap((group) => group.fields).concat(form.other_fields);
  useEffect(() =>
    onDropped((names) => {
      const name = fieldFor(shown, names);
      if (name) set(name, name === "files" ? names.join(" ") : (names[0] ?? ""));
    }),
  );
  const run = async (event: Event) => {
    event.preventDefault();
    setRefused({});
    try {
      setJob(await start(form.name, values));
    } catch (problem) {
      const errors = problem instanceof Refused ? problem.errors : {};
      setRefused(Object.keys(errors).length ? errors : { "": (problem as Error).message });
    }
  };
  const ended = (finished: Job) => {
    setJob(undefined);
    if (finished.state === "done") location.hash = `#/result/${finished.name}`;
    else {
      setRefused(finished.errors ?? {});
      remove(finished.name); // the form says why it failed
    }
  };
  const marked = Object.keys(refused).filter((name) => name && shown.some((other) => other.name === name));
  const errors = {
    ...Object.fromEntries(Object.entries(checked.errors).filter(([name]) => touched.has(name))),
    ...refused,
  };
  const field = (name: string) => {
    const declared = shown.find((other) => other.name === name);
    return declared ? (
      <FieldOf
        key={name}
        field={declared}
        value={values[name] ?? ""}
        error={errors[name] ?? ""}
        suggestions={form.suggestions[name] ?? []}
        set={(value) => set(name, value)}
      />
    ) : null;
  };
  return (
    <div class="ask" data-ready="ask">
      <form onSubmit={run} noValidate>
        <h1>{form.title}</h1>
        <p class="lead">{form.summary}</p>
        <Problem text={silence} />
        {form.groups.map((group) => (
          <fieldset key={group.name}>
            <legend>{group.name}</legend>
            <div class="fields">{group.fields.map((declared) => field(declared.name))}</div>
            {group.fields.some(({ name }) => name === "gpu" || name === "gpus") && <Cluster {...checked.cluster} />}
          </fieldset>
        ))}
        <More form={form} values={values} errors={errors} field={field} />
        <div class="row actions">
          {mayChange ? (
            <button type="submit" class="primary" disabled={Boolean(job)}>
              Predict
            </button>
          ) : (
            <p class="dim">This link only shows: jobs are started by others.</p>
          )}
          {job && <Running job={job} ended={ended} />}
        </div>
        <Problem text={refused[""]} />
        {marked.map((name) => (
          <Marked key={name} text={refused[name] ?? ""} name={name} />
        ))}
      </form>
      <aside aria-label="The same elsewhere">
        <Copied label="Command" text={checked.command} />
        <Copied label="Python" text={checked.python} />
        <p class="dim">The app runs this command in the project folder, and adds --json with the name of the result.</p>
      </aside>
    </div>
  );
}

// A refusal where the button was pressed, with the way to the field that it is about.
function Marked({ text, name }: { text: string; name: string }) {
  const show = () => {
    const field = document.getElementById(`field-${name}`);
    field?.scrollIntoView({ block: "center" });
    field?.focus();
  };
  return (
    <div class="row">
      <Problem text={text} />
      <button type="button" class="small" onClick={show}>
        Show the field
      </button>
    </div>
  );
}

// Nodes, their links and the network between them, as the command line takes the fields.
function Cluster({ markup, facts }: Checked["cluster"]) {
  if (!markup) return null;
  return (
    <figure class="cluster">
      {/* drawn by presim.report.drawings, its texts escaped */}
      <div dangerouslySetInnerHTML={{ __html: markup }} />
      <figcaption class="dim">
        {facts.map((fact) => (
          <p key={fact}>{fact}</p>
        ))}
      </figcaption>
    </figure>
  );
}

function More({
  form,
  values,
  errors,
  field,
}: {
  form: Form;
  values: Values;
  errors: Record<string, string>;
  field: (name: string) => preact.JSX.Element | null;
}) {
  const [search, setSearch] = useState("");
  const used = form.other_fields.filter((declared) => values[declared.name]);
  const isWrong = form.other_fields.some((declared) => errors[declared.name]);
  const [isOpen, setOpen] = useState(used.length > 0);
  const hits = form.other_fields.filter((declared) =>
    `${declared.flag} ${declared.help} ${labelled(declared).label}`.toLowerCase().includes(search.toLowerCase()),
  );
  return (
    <details open={isOpen || isWrong} onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>
        More options{" "}
        <small>{used.length ? `${used.length} of ${form.other_fields.length} set` : form.other_fields.length}</small>
      </summary>
      {(isOpen || isWrong) && (
        <>
          <label class="search">
            Find an option{" "}
            <input type="search" value={search} onInput={(event) => setSearch(event.currentTarget.value)} />
          </label>
          <div class="fields">{hits.map((declared) => field(declared.name))}</div>
          {hits.length === 0 && <p class="dim">No option has these words.</p>}
        </>
      )}
    </details>
  );
}

function Running({ job, ended }: { job: Job; ended: (job: Job) => void }) {
  const [current, setCurrent] = useState(job);
  useEffect(() => {
    let timer = 0;
    const look = async () => {
      const answer = await getJob(job.name).catch(() => undefined);
      if (answer) setCurrent(answer);
      if (answer && answer.state !== "running" && answer.state !== "queued") ended(answer);
      else timer = setTimeout(look, POLL_MS);
    };
    look();
    return () => clearTimeout(timer);
  }, [job.name, ended]);
  return (
    <span class="row" role="status">
      <progress aria-label={`${job.name} runs`} />
      {current.state === "queued" ? "waits for a free core" : `runs · ${elapsed(current.seconds)}`}
      {current.progress && <span class="dim prose">{current.progress}</span>}
      <button type="button" class="small" onClick={() => cancel(job.name)}>
        Cancel
      </button>
    </span>
  );
}
