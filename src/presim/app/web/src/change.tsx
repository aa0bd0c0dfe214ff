// What if: controls that set options of a result's command; the answer comes while they move.
import { useContext, useEffect, useMemo, useRef, useState } from "preact/hooks";
import { type Answers, useAhead, useAnswers } from "./answers";
import {
  type Change,
  type Checked,
  check,
  type Form,
  getForm,
  getResult,
  type Result,
  type Summary,
  start,
  type Values,
} from "./api";
import { changed, nearby, offer } from "./controls";
import { Facts } from "./result";
import { Sweep, type Swept } from "./sweep";
import { Cards, Copied, MayChange, Problem, useAnswer } from "./ui";

export function ChangePage({ name }: { name: string }) {
  const { answer, error } = useAnswer(async () => {
    const result = await getResult(name);
    return { result, form: await getForm(result.question) };
  }, name);
  if (!answer) return <Problem text={error} />;
  return <Changed result={answer.result} form={answer.form} />;
}

// One question at a time; of those that come meanwhile, the last.
function useLatest(answers: Answers, values: Values, isChanged: boolean) {
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
        const answer = await answers.ask(asked).then(
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
  }, [answers, values, isChanged]);
  return state;
}

function Changed({ result, form }: { result: Result; form: Form }) {
  const mayChange = useContext(MayChange);
  const [changes, setChanges] = useState<Record<string, string>>({});
  const values = useMemo(() => changed(form, result.values, changes), [form, result.values, changes]);
  const isChanged = Object.keys(changes).length > 0;
  const answers = useAnswers(form.name, result.name);
  const { summary, error, ms, isBusy } = useLatest(answers, values, isChanged);
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
  // The base as the controls predict it, so that differences come from the changes alone; then the first moves.
  const [base, setBase] = useState<Summary>();
  useEffect(() => {
    answers.ask(changed(form, result.values, {})).then(setBase, () => setBase(result.summary));
  }, [answers, form, result]);
  const near = useMemo(() => nearby(form, result.values, changes), [form, result.values, changes]);
  useAhead(answers, near, base !== undefined && !isBusy);
  const baseFigures = base?.figures ?? result.summary.figures;
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
                  values: words.map((word) =>
                    changed(form, result.values, { ...changes, [control.field]: control.pattern.replace("%", word) }),
                  ),
                })
              }
            />
          ))}
          <div class="row">
            <button type="button" disabled={!isChanged} onClick={() => setChanges({})}>
              Back to the base
            </button>
            {mayChange && (
              <button type="button" class="primary" disabled={!summary} onClick={keep}>
                Keep as a result
              </button>
            )}
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
          <OtherBase result={result} base={base} form={form} />
          <Problem text={error} />
          {error && <p class="dim">Figures of the base, until the controls stand at values that can be predicted:</p>}
          {summary?.warning && <p class="warning">{summary.warning}</p>}
          <Cards figures={summary?.figures ?? baseFigures} base={isChanged && !error ? baseFigures : undefined} />
          {checked && <Copied label="Command" text={checked.command} />}
          {swept && <Sweep answers={answers} swept={swept} base={baseFigures} />}
        </section>
      </div>
    </div>
  );
}

// Says so where the controls predict the base otherwise than the result was made.
function OtherBase({ result, base, form }: { result: Result; base: Summary | undefined; form: Form }) {
  const kept = result.summary.figures[0];
  const predicted = base?.figures.find((figure) => figure.key === kept?.key);
  if (!kept || !predicted || kept.text === predicted.text) return null;
  const settings = Object.entries(form.what_if).map(([name, value]) => `${name} ${value}`);
  return (
    <p class="warning">
      Differences are to the base as these controls predict it{settings.length > 0 && ` (${settings.join(", ")})`}:{" "}
      {predicted.label} {predicted.text}. The result itself has {kept.text}.
    </p>
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
  const { field, words, isSlider, base: baseWord, current, neutral } = offer(control, form, base, value);
  const id = `change-${control.field}`;
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
