"use strict";
// Results of `presim search --json` and `presim serve --json`. Their texts are only ever set as text, never as markup.
const words = (point, names) => names.map(name => `${name}=${point[name]}`).join(" ");
const MOST_ROWS = 20;

async function drawSearch(pane, number) {
  const data = await ask(`api/results/${number}`);
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
  plot(chart, "step time in seconds over memory in GiB; red: does not fit", [points.map(one => one.figures.memory_bytes / GIB),
    points.map(one => one.figures.fits ? one.figures.step_time_s : null), points.map(one => one.figures.fits ? null : one.figures.step_time_s)],
    [{}, dots("fits", "#3e63dd"), dots("does not fit", "#e5484d")]);
}

const dots = (label, stroke) => ({ label, stroke, paths: () => null, points: { show: true, size: 7, stroke } });

async function drawServing(pane, number) {
  const data = await ask(`api/results/${number}`);
  if (!data) return;
  const figures = data.figures, span = name => { const ends = data.intervals_80[name]; return ends ? `${round(ends[0])} to ${round(ends[1])}` : ""; };
  const latency = ["ttft", "tpot", "itl", "e2el"].map(name => [`${name.toUpperCase()} in ms`, ...["mean", "median", "p90", "p99"].map(kind => round(figures[`${kind}_${name}_ms`])), span(`mean_${name}_ms`)]);
  const rates = ["request_throughput", "output_throughput", "total_token_throughput", "request_goodput"].filter(name => figures[name] != null).map(name => [`${name.replaceAll("_", " ")} a second`, round(figures[name]), span(name)]);
  const memory = ["weights", "activations", "others", "kv_cache"].map(name => ({ name: name.replace("_", " "), size: data.memory[`${name}_GiB`] * GIB }));
  const engine = Object.entries(data.engine).map(([name, value]) => [name.replaceAll("_", " "), round(value)]);
  pane.replaceChildren(make("p", `${data.deployment.model} ${data.deployment.plan} on ${data.deployment.gpus} ${data.deployment.gpu} · ${data.workload.name}`, { class: "dim" }),
    ...(data.overloaded ? [make("p", "Overloaded: the queue grows without bound.", { role: "alert" })] : []),
    make("h2", "Latency"), table(["", "mean", "median", "p90", "p99", "80 % interval of the mean"], latency),
    make("h2", "Throughput"), table(["", "", "80 % interval"], rates), make("h2", "Memory of one GPU"), ...parts(memory, gib),
    make("h2", "Engine"), table(["", ""], engine), make("h2", "Notes"), ...[...data.notes, ...data.not_modelled].map(note => make("p", note, { class: "dim" })));
}

const round = value => value == null ? "" : Number.isInteger(value) ? value.toLocaleString("en") : typeof value === "number" ? (Math.abs(value) >= 100 ? value.toFixed(0) : value.toPrecision(3)) : String(value);
