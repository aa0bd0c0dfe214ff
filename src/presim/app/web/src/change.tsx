// What if: controls that set options of a result's command; the answer comes while they move.
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import {
  type Change,
  type Checked,
  change,
  check,
  type Form,
  getForm,
  getResult,
  type Result,
  type Summary,
  start,
  type Values,
} from "./api";
import { positions, wordOf } from "./format";
import { Facts } from "./result";
import { Sweep, type Swept } from "./sweep";
import { Cards, Copied, Problem, useAnswer } from "./ui";

export function ChangePage({ name }: { name: string }) {
  const { answer, error } = useAnswer(async () => {
    const result = await getResult(name);
    return { result, form: await getForm(result.question) };
  }, name);
  if (!answer) return <Problem text={error} />;
  return <Changed result={answer.result} form={answer.form} />;
}

// One question at a time; of those that come meanwhile, the last.
function useLatest(question: string, values: Values, isChanged: boolean) {
  const [state, setState] = useState<{ summary?: Summary; error?: string; ms?: number; isBusy?: boolean }>({});
  const wanted = useRef<Values | undefined>(undefined);
  const isRunning = useRef(false);
  useEffect(() => {
    wanted.current = isChanged ? values : undefined;
    if (!isChanged) setState({});
    const loop = async () => {
      isRunning.current = true;
      while (wanted.current) {
        const asked = wanted.current;
        const began = performance.now();
        setState((before) => ({ ...before, isBusy: true }));
        const answer = await change(question, asked).then(
          (summary) => ({ summary, error: "" }),
          (problem: Error) => ({ summary: undefined, error: problem.message }),
        );
        if (wanted.current === asked) {
          wanted.current = undefined;
          setState({ ...answer, ms: performance.now() - began, isBusy: false });
        } else if (!wanted.current) setState({});
      }
      isRunning.current = false;
    };
    if (isChanged && !isRunning.current) loop();
  }, [question, values, isChanged]);
  return state;
}

function Changed({ result, form }: { result: Result; form: Form }) {
  const [changes, setChanges] = useState<Record<string, string>>({});
  const values = useMemo(() => ({ ...result.values, ...changes }), [result.values, changes]);
  const isChanged = Object.keys(changes).length > 0;
  const { summary, error, ms, isBusy } = useLatest(form.name, values, isChanged);
  const [swept, setSwept] = useState<Swept>();
  const [checked, setChecked] = useState<Checked>();
  useEffect(() => {
    let isCurrent = true;
    check(form.name, values).then(
      (answer) => isCurrent && setChecked(answer),
      () => undefined,
    );
    return () => {
      isCurrent = false;
    };
  }, [form.name, values]);
  useEffect(() => {
    change(form.name, result.values).catch(() => undefined); // so that the first answer is as fast as the others
  }, [form.name, result.values]);
  const set = (control: Change, word: string | undefined) => {
    const { [control.field]: _, ...others } = changes;
    setChanges(word === undefined ? others : { ...others, [control.field]: control.pattern.replace("%", word) });
  };
  const keep = async () => {
    await start(form.name, values);
    location.hash = "#/";
  };
  return (
    <div data-ready="change" data-busy={isBusy ? "true" : "false"}>
      <div class="row title">
        <h1>What if… {result.name}</h1>
        <span class="spring" />
        <a class="button" href={`#/result/${encodeURIComponent(result.name)}`}>
          Back to the result
        </a>
      </div>
      <p class="lead">{result.summary.subject}</p>
      <Facts result={result} />
      <div class="change">
        <fieldset class="controls">
          <legend>Change</legend>
          {form.changes.map((control) => (
            <Control
              key={control.field}
              control={control}
              form={form}
              base={String(result.values[control.field] ?? "")}
              value={changes[control.field]}
              set={(word) => set(control, word)}
              sweep={(words) =>
                setSwept({
                  label: control.label,
                  field: control.field,
                  words,
                  values: words.map((word) => ({ ...values, [control.field]: control.pattern.replace("%", word) })),
                })
              }
            />
          ))}
          <div class="row">
            <button type="button" disabled={!isChanged} onClick={() => setChanges({})}>
              Back to the base
            </button>
            <button type="button" class="primary" disabled={!summary} onClick={keep}>
              Keep as a result
            </button>
          </div>
        </fieldset>
        <section aria-label="Figures" aria-live="polite">
          <p class="dim" role="status">
            {isBusy
              ? "Predicting…"
              : ms === undefined
                ? "Move a control: the figures follow, with the difference to the base."
                : `Answered in ${(ms / 1000).toFixed(2)} s`}
          </p>
          <Problem text={error} />
          {summary?.warning && <p class="warning">{summary.warning}</p>}
          <Cards
            figures={summary?.figures ?? result.summary.figures}
            base={isChanged ? result.summary.figures : undefined}
          />
          {checked && <Copied label="Command" text={checked.command} />}
          {swept && <Sweep question={form.name} swept={swept} base={result.summary.figures} />}
        </section>
      </div>
    </div>
  );
}

function Control({
  control,
  form,
  base,
  value,
  set,
  sweep,
}: {
  control: Change;
  form: Form;
  base: string;
  value: string | undefined;
  set: (word: string | undefined) => void;
  sweep: (words: string[]) => void;
}) {
  const fields = form.groups.flatMap((group) => group.fields).concat(form.other_fields);
  const field = fields.find((other) => other.name === control.field);
  const baseWord = wordOf(base, control.pattern);
  const offered = control.words.length || control.factors.length ? control.words : (field?.choices ?? []);
  const words = positions(offered, baseWord ? control.factors : [], baseWord);
  const isSlider = words.length > 1 && words.every((word) => word !== "" && !Number.isNaN(Number(word)));
  const current = value === undefined ? baseWord : wordOf(value, control.pattern);
  const id = `change-${control.field}`;
  const neutral = current || field?.default || (words.includes("1") ? "1" : (words[0] ?? ""));
  if (words.length === 0) return null;
  return (
    <div class={`control ${value === undefined ? "" : "moved"}`} data-change={control.field}>
      <label for={id}>
        {control.label} {control.note && <small>{control.note}</small>}
      </label>
      {isSlider ? (
        <input
          id={id}
          type="range"
          min={0}
          max={words.length - 1}
          value={Math.max(words.indexOf(neutral), 0)}
          aria-valuetext={current || "as the base"}
          onInput={(event) => set(words[Number(event.currentTarget.value)])}
        />
      ) : (
        <select id={id} value={current} onChange={(event) => set(event.currentTarget.value || undefined)}>
          {!baseWord && <option value="">{field?.default ? `${field.default} (default)` : "as the base"}</option>}
          {words.map((word) => (
            <option key={word}>{word}</option>
          ))}
        </select>
      )}
      {isSlider ? <output for={id}>{current || field?.default || "base"}</output> : <span />}
      {isSlider ? (
        <button
          type="button"
          class="small quiet"
          aria-label={`Sweep ${control.label} over ${words.length} values`}
          onClick={() => sweep(words)}
        >
          Sweep
        </button>
      ) : (
        <span />
      )}
      <button
        type="button"
        class="small quiet"
        aria-label={`${control.label}: back to the base`}
        disabled={value === undefined}
        onClick={() => set(undefined)}
      >
        ↺
      </button>
    </div>
  );
}
