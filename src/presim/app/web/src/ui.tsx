// Small parts of pages.
import { type ComponentChildren, createContext } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import type { Block, Figure, Limit, Part, WaterfallBar } from "./api";
import { difference, ticks, verdict } from "./format";

// Whether the token of the address may start and delete.
export const MayChange = createContext(true);

// What a promise brings, and what it is refused with; asked again when the key changes.
export function useAnswer<T>(ask: () => Promise<T>, key: string): { answer?: T; error?: string } {
  const [state, setState] = useState<{ answer?: T; error?: string; key?: string }>({});
  useEffect(() => {
    let isCurrent = true;
    ask().then(
      (answer) => isCurrent && setState({ answer, key }),
      (error: Error) => isCurrent && setState({ error: error.message, key }),
    );
    return () => {
      isCurrent = false;
    };
  }, [key]);
  return state.key === key ? state : {};
}

export function Problem({ text }: { text?: string }) {
  return text ? (
    <p class="problem" role="alert">
      {text}
    </p>
  ) : null;
}

export function Copied({ label, text }: { label: string; text: string }) {
  const [isCopied, setCopied] = useState(false);
  const copy = async () => {
    await navigator.clipboard.writeText(text);
    setCopied(true);
    setTimeout(() => setCopied(false), 1500);
  };
  return (
    <section class="copied" aria-label={label}>
      <header>
        <h2>{label}</h2>
        <button type="button" class="small" onClick={copy}>
          {isCopied ? "Copied" : "Copy"}
        </button>
      </header>
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls is reached by the keyboard */}
      <pre tabIndex={0}>{text}</pre>
    </section>
  );
}

export function Cards({ figures, base }: { figures: Figure[]; base?: Figure[] }) {
  return (
    <dl class="cards">
      {figures.map((figure) => {
        const reference = base?.find((other) => other.key === figure.key);
        return (
          <div key={figure.key} data-figure={figure.key}>
            <dt>{figure.label}</dt>
            <dd class="value">{figure.text}</dd>
            {reference && (
              <dd>
                <Difference figure={figure} base={reference} />
              </dd>
            )}
            <dd class="dim">{figure.remark}</dd>
          </div>
        );
      })}
    </dl>
  );
}

export function Difference({ figure, base }: { figure: Figure; base?: Figure }) {
  if (!base) return null;
  const text = difference(figure.number, base.number);
  const news = verdict(figure, base);
  return (
    <span class={`difference ${news}`}>
      {text || "as the base"}
      {news ? ` ${news}` : ""}
    </span>
  );
}

// Parts of a whole; a limit below the whole is a line across, with its name below.
export function Bar({ parts, limit }: { parts: Part[]; limit?: Limit | null }) {
  const text = [...parts.map((part) => `${part.name} ${part.figure}`), ...(limit ? [limit.name] : [])].join(", ");
  const letter = (part: Part) => (part.letter === "." ? "" : part.letter);
  return (
    <>
      <div class="parts" role="img" aria-label={text}>
        {parts.map((part) => (
          <span
            key={part.name}
            class={part.css_class}
            style={{ flexGrow: part.share }}
            title={`${part.name} ${part.figure}`}
          >
            {part.share >= 0.03 ? letter(part) : ""}
          </span>
        ))}
        {limit && <i class="limit" style={{ left: `${limit.share * 100}%` }} />}
      </div>
      {limit && <p class="limit-name">{limit.name}: what is right of the line does not fit</p>}
      <p class="legend">
        {parts.map((part) => (
          <span key={part.name}>
            <i class={part.css_class}>{letter(part)}</i>
            {part.name} {part.figure}
          </span>
        ))}
      </p>
    </>
  );
}

export function Table({
  columns,
  rows,
  isNumber,
  label,
}: {
  columns: string[];
  rows: ComponentChildren[][];
  isNumber: boolean[];
  label: string;
}) {
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls is reached by the keyboard
    // biome-ignore lint/a11y/useSemanticElements: a fieldset is of forms
    <div class="scroll" tabIndex={0} role="group" aria-label={label}>
      <table>
        {columns.some(Boolean) && (
          <thead>
            <tr>
              {columns.map((name, column) =>
                name ? (
                  <th key={column} scope="col" class={isNumber[column] ? "number" : undefined}>
                    {name}
                  </th>
                ) : (
                  <td key={column} />
                ),
              )}
            </tr>
          </thead>
        )}
        <tbody>
          {rows.map((row, index) => (
            <tr key={index}>
              {row.map((cell, column) => (
                <td key={column} class={isNumber[column] ? "number" : undefined}>
                  {meter(cell, row[column - 1]) ?? cell}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

// A bar that the terminal draws of blocks, as a bar; red where the change before it grows.
function meter(cell: ComponentChildren, before: ComponentChildren) {
  if (typeof cell !== "string" || !/^█+$/.test(cell)) return null;
  const news = String(before).startsWith("+") ? "worse" : "better";
  return <span class={`meter ${news}`} style={{ width: `${cell.length * 8}px` }} />;
}

export function Blocks({ blocks }: { blocks: Block[] }) {
  return (
    <>
      {blocks.map((block, index) => (
        <BlockOf key={index} block={block} />
      ))}
    </>
  );
}

function BlockOf({ block }: { block: Block }) {
  switch (block.type) {
    case "heading":
      return block.level > 1 ? (
        <h2>
          {block.name} <small>{block.caption}</small>
        </h2>
      ) : (
        <p class="dim">
          {block.name} · {block.caption}
        </p>
      );
    case "paragraph":
      return <p class="prose">{block.text}</p>;
    case "lines":
      // biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls is reached by the keyboard
      return <pre tabIndex={0}>{block.text}</pre>;
    case "bar":
      return <Bar parts={block.parts} />;
    case "waterfall":
      return <Waterfall name={block.name} bars={block.bars} />;
    case "table":
      return (
        <Table columns={block.columns} rows={block.rows} isNumber={block.is_number} label={block.caption || "Table"} />
      );
  }
}

// From one total to another, part by part; longer and shorter have a sign beside the colour.
function Waterfall({ name, bars }: { name: string; bars: WaterfallBar[] }) {
  return (
    <>
      <h2>
        {name} <small>step time, part by part</small>
      </h2>
      <div class="waterfall" data-waterfall={bars.length}>
        {bars.map((bar) => (
          <>
            <span>{bar.name}</span>
            <span class="track" aria-hidden="true">
              <span class={bar.kind} style={{ left: `${bar.start * 100}%`, width: `${bar.size * 100}%` }} />
            </span>
            <span class="number">{bar.figure}</span>
          </>
        ))}
      </div>
    </>
  );
}

// Tabs by arrows, as the WAI-ARIA practices have them.
export function Tabs({ names, current, choose }: { names: string[]; current: string; choose: (name: string) => void }) {
  const list = useRef<HTMLDivElement>(null);
  const move = (event: KeyboardEvent) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    const next = names[(names.indexOf(current) + step + names.length) % names.length] ?? current;
    choose(next);
    list.current?.querySelector<HTMLButtonElement>(`[data-pane="${next}"]`)?.focus();
  };
  return (
    <div class="tabs" role="tablist" ref={list} onKeyDown={move}>
      {names.map((name) => (
        <button
          key={name}
          type="button"
          role="tab"
          data-pane={name}
          aria-selected={name === current}
          aria-controls="pane"
          tabIndex={name === current ? 0 : -1}
          onClick={() => choose(name)}
        >
          {name}
        </button>
      ))}
    </div>
  );
}

// Round ticks below lanes that begin at 0 s.
export function SecondsAxis({ end }: { end: number }) {
  return (
    <div class="ticks" aria-hidden="true">
      {ticks(end).map((tick) => (
        <span key={tick} style={{ left: `${(tick / end) * 100}%` }}>
          {tick} s
        </span>
      ))}
    </div>
  );
}
