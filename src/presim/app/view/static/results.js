"use strict";
// Results of verbs: the report as blocks, and the charts of searches and serving. Their texts are only ever set as text, never as markup.
const words = (point, names) => names.map(name => `${name}=${point[name]}`).join(" ");
const MOST_ROWS = 20;

async function drawReport(pane, base) {
  const data = await ask(`${base}/report`);
  if (!data) return;
  pane.replaceChildren(...data.blocks.flatMap(block => blockOf[block.type](block)));
}

const blockOf = {
  heading: block => { const made = make("h2", block.name); if (block.caption) made.append(" ", make("small", block.caption)); return [made]; },
  paragraph: block => [make("p", block.text)],
  lines: block => [make("pre", block.text, { tabindex: 0 })],
  bar: block => parts(block.parts),
  table: block => [...(block.caption ? [make("p", block.caption, { class: "dim" })] : []), table(block.columns, block.rows, block.is_number)],
};

async function drawSearch(pane, base) {
  const data = await ask(`${base}/search`);
  if (!data) return;
  const same = data.varied.filter(name => data.best.every(one => one.point[name] === data.best[0].point[name]));
  const differing = data.varied.filter(name => !same.includes(name));
  const chart = make("div"), rows = data.best.slice(0, MOST_ROWS).map(one => [words(one.point, differing), seconds(one.figures.step_time_s), gib(one.figures.memory_bytes), gib(one.figures.headroom_bytes), one.figures.mfu == null ? "" : `${(100 * one.figures.mfu).toFixed(1)} %`]);
  const fates = Object.entries(data.fates).map(([fate, count]) => `${count} ${fate}`).join(", ");
  const importance = Object.entries(data.importance).filter(([, value]) => value > 0).sort((one, other) => other[1] - one[1]);
  pane.replaceChildren(make("p", `${data.subject}: ${fates}; ${data.strategy}${data.complete ? "" : ", not complete"}`, { class: "dim" }),
    chart, make("h2", "Best"), ...(same.length && data.best.length ? [make("p", `All have ${words(data.best[0].point, same)}.`, { class: "dim" })] : []),
    table(["", "step time", "memory", "headroom", "MFU"], rows), make("h2", "Which knob matters"),
    table(["", "part of the variance"], importance.map(([name, value]) => [name, value.toFixed(2)])), ...data.notes.map(note => make("p", note, { class: "dim" })));
  const points = data.points.filter(one => one.figures.step_time_s).sort((one, other) => one.figures.memory_bytes - other.figures.memory_bytes);
  plot(chart, "step time in seconds over memory in GiB", [points.map(one => one.figures.memory_bytes / GIB),
    points.map(one => one.figures.fits ? one.figures.step_time_s : null), points.map(one => one.figures.fits ? null : one.figures.step_time_s)],
    [{}, dots("fits", "#5686f2", "#5686f2"), dots("does not fit", "#d55e00", "transparent")]);
}

// Those that do not fit are hollow, so that no colour is needed to tell them.
const dots = (label, stroke, fill) => ({ label, stroke, paths: () => null, points: { show: true, size: 8, width: 2, stroke, fill } });

async function drawServing(pane, base) {
  const data = await ask(`${base}/serving`);
  if (!data) return;
  const figures = data.figures, span = name => { const ends = data.intervals_80[name]; return ends ? `${round(ends[0])} to ${round(ends[1])}` : ""; };
  const latency = ["ttft", "tpot", "itl", "e2el"].map(name => [`${name.toUpperCase()} in ms`, ...["mean", "median", "p90", "p99"].map(kind => round(figures[`${kind}_${name}_ms`])), span(`mean_${name}_ms`)]);
  const rates = ["request_throughput", "output_throughput", "total_token_throughput", "request_goodput"].filter(name => figures[name] != null).map(name => [`${name.replaceAll("_", " ")} a second`, round(figures[name]), span(name)]);
  const sizes = ["weights", "activations", "others", "kv_cache"].map(name => ({ name: name.replace("_", " "), bytes: Math.max(data.memory[`${name}_GiB`], 0) * GIB }));
  const all = sizes.reduce((sum, one) => sum + one.bytes, 0) || 1;
  const memory = sizes.map(one => ({ name: one.name, figure: gib(one.bytes), share: one.bytes / all, css_class: `part-${one.name.replace(" ", "-")}`, letter: one.name[0] }));
  const engine = Object.entries(data.engine).map(([name, value]) => [name.replaceAll("_", " "), round(value)]);
  pane.replaceChildren(make("p", `${data.deployment.model} ${data.deployment.plan} on ${data.deployment.gpus} ${data.deployment.gpu} · ${data.workload.name}`, { class: "dim" }),
    ...(data.partial ? [make("p", `partial: ${data.partial}`, { role: "alert" })] : []), ...(data.overloaded ? [make("p", "Overloaded: the queue grows without bound.", { role: "alert" })] : []),
    make("h2", "Latency"), table(["", "mean", "median", "p90", "p99", "80 % interval of the mean"], latency),
    make("h2", "Throughput"), table(["", "", "80 % interval"], rates), make("h2", "Memory of one GPU"), ...parts(memory),
    make("h2", "Engine"), table(["", ""], engine), make("h2", "Notes"), ...[...data.notes, ...data.not_modelled].map(note => make("p", note, { class: "dim" })));
}

const round = value => value == null ? "" : Number.isInteger(value) ? value.toLocaleString("en") : typeof value === "number" ? (Math.abs(value) >= 100 ? value.toFixed(0) : value.toPrecision(3)) : String(value);
