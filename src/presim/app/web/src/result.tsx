// A result: what it is of, its key figures, and its panes.
import { useContext, useEffect, useState } from "preact/hooks";
import { getResult, pageAddress, type Result, simulateAddress, timelinesAddress } from "./api";
import { LoadPane } from "./load";
import { Pane } from "./panes";
import { Cards, Copied, MayChange, Problem, Tabs, useAnswer } from "./ui";

export function ResultPage({ name, pane }: { name: string; pane: string }) {
  const { answer: result, error } = useAnswer(() => getResult(name), name);
  if (!result)
    return error ? (
      <>
        <h1>{name}</h1>
        <Problem text={error} />
        <p>
          <a href="#/">Back to the project</a>
        </p>
      </>
    ) : (
      <p class="dim">Loading…</p>
    );
  return <Shown result={result} first={pane} />;
}

export function Facts({ result }: { result: Result }) {
  const facts = [
    ["GPU", result.summary.gpu || String(result.values.gpu ?? "")], // a search without a plan names none
    ["Cluster", result.summary.cluster],
    ["presim", result.version],
    ["Date", result.date],
  ].filter(([, value]) => value);
  return (
    <dl class="facts">
      {facts.map(([name, value]) => (
        <div key={name}>
          <dt>{name}</dt>
          <dd>{value}</dd>
        </div>
      ))}
    </dl>
  );
}

function Shown({ result, first }: { result: Result; first: string }) {
  const mayChange = useContext(MayChange);
  const hasLoad = mayChange && result.kind === "serving" && result.is_changeable && Number(result.values.rate) > 0;
  const [chart, ...others] = result.panes;
  const panes = hasLoad && chart ? [chart, "load", ...others] : result.panes;
  const names = result.log ? [...panes, "log"] : panes;
  const [pane, setPane] = useState(names.includes(first) ? first : (names[0] ?? "report"));
  useEffect(() => {
    history.replaceState(null, "", `#/result/${encodeURIComponent(result.name)}/${pane}`);
  }, [pane, result.name]);
  const name = encodeURIComponent(result.name);
  const imported = result.question === "import" ? String(result.values.out ?? "") : ""; // folder of the saved job
  return (
    <>
      <div class="row title">
        <h1>{result.name}</h1>
        <span class="spring" />
        {result.question && mayChange && (
          <>
            {result.is_changeable && (
              <a class="button primary" href={`#/change/${name}`}>
                What if…
              </a>
            )}
            <a class="button" href={`#/ask/${result.question}/${name}`}>
              Ask again
            </a>
          </>
        )}
        {imported && mayChange && (
          <a class="button" href={simulateAddress(imported)}>
            Simulate
          </a>
        )}
        {(imported || result.has_timelines) && (
          <a class="button" href={timelinesAddress(imported || result.name)} target="_blank" rel="noreferrer">
            Timelines
          </a>
        )}
        <a class="button" href={pageAddress(result.name)} target="_blank" rel="noreferrer">
          Report
        </a>
      </div>
      <p class="lead">{result.summary.subject}</p>
      <Facts result={result} />
      {result.summary.warning && (
        <p class="problem" role="alert">
          {result.summary.warning}
        </p>
      )}
      <Cards figures={result.summary.figures} />
      {result.command && <Copied label="Command" text={result.command} />}
      <Tabs names={names} current={pane} choose={setPane} />
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: as the WAI-ARIA practices have it for tab panels */}
      <section id="pane" role="tabpanel" aria-label={pane} tabIndex={0}>
        {pane === "log" ? (
          <pre>{result.log}</pre>
        ) : pane === "load" ? (
          <LoadPane result={result} />
        ) : (
          <Pane name={result.name} pane={pane} values={result.values} />
        )}
      </section>
    </>
  );
}
