// Results as columns: what each is of, its figures, and the difference of each to the first.
import { getComparison, getPane, getResult, type Part, type Result } from "./api";
import { Bar, Blocks, Difference, Problem, useAnswer } from "./ui";

interface Bars {
  time: Part[];
  memory: Part[];
}

export function ComparePage({ names }: { names: string[] }) {
  const { answer, error } = useAnswer(async () => {
    const columns = await Promise.all(
      names.map(async (name) => {
        const result = await getResult(name);
        const bars = result.panes.includes("summary") ? await getPane<Bars>(name, "summary") : undefined;
        return { result, bars };
      }),
    );
    return { columns, blocks: await getComparison(names) };
  }, names.join());
  if (!answer) return <Problem text={error} />;
  return (
    <div data-ready="compare">
      <h1>Compare {names.length} results</h1>
      <Columns results={answer.columns.map((column) => column.result)} />
      {(["time", "memory"] as const).map((kind) => {
        const columns = answer.columns.filter((column) => column.bars?.[kind].length);
        return columns.length ? (
          <section key={kind} aria-label={kind}>
            <h2>{kind === "time" ? "Time of the step" : "Memory of the device in GiB"}</h2>
            {columns.map(({ result, bars }) => (
              <div key={result.name}>
                <h3>{result.name}</h3>
                <Bar parts={bars?.[kind] ?? []} />
              </div>
            ))}
          </section>
        ) : null;
      })}
      {answer.blocks.length > 0 && (
        <section aria-label="What changed">
          <h2>What changed, part by part</h2>
          <Blocks blocks={answer.blocks} />
        </section>
      )}
    </div>
  );
}

function Columns({ results }: { results: Result[] }) {
  const base = results[0];
  const labels = new Map(
    results.flatMap((result) => result.summary.figures.map((figure) => [figure.key, figure.label])),
  );
  const about: [string, (result: Result) => string][] = [
    ["Job", (result) => result.summary.subject],
    ["Command", (result) => result.command],
    ["Cluster", (result) => result.summary.cluster],
    ["presim", (result) => result.version],
    ["Date", (result) => result.date],
  ];
  const basedOn = (name: string) =>
    [name, ...results.map((result) => result.name).filter((other) => other !== name)].map(encodeURIComponent).join(",");
  const find = (result: Result | undefined, key: string) =>
    result?.summary.figures.find((figure) => figure.key === key);
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls is reached by the keyboard
    // biome-ignore lint/a11y/useSemanticElements: a fieldset is of forms
    <div class="scroll" tabIndex={0} role="group" aria-label="Results as columns">
      <table class="columns">
        <thead>
          <tr>
            <td />
            {results.map((result) => (
              <th key={result.name} scope="col">
                <a href={`#/result/${encodeURIComponent(result.name)}`}>{result.name}</a>
                {result === base ? (
                  <small class="dim">the base</small>
                ) : (
                  <a class="small" href={`#/compare/${basedOn(result.name)}`} aria-label={`${result.name} as the base`}>
                    as the base
                  </a>
                )}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {about
            .filter(([, read]) => results.some(read))
            .map(([name, read]) => (
              <tr key={name}>
                <th scope="row">{name}</th>
                {results.map((result) => (
                  <td key={result.name}>{read(result)}</td>
                ))}
              </tr>
            ))}
          {[...labels].map(([key, label]) => (
            <tr key={key} data-figure={key}>
              <th scope="row">{label}</th>
              {results.map((result) => {
                const figure = find(result, key);
                return (
                  <td key={result.name}>
                    {figure ? (
                      <div class="figure">
                        <span class="value">{figure.text}</span>
                        {result !== base && <Difference figure={figure} base={find(base, key)} />}
                        <span class="dim">{figure.remark}</span>
                      </div>
                    ) : (
                      "—"
                    )}
                  </td>
                );
              })}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
