"use strict";
// The drawn network: links in the colour of their load at a moment of the step, and the busiest link of each kind over time.
const LOAD_STEPS = [[90, "--load-full"], [50, "--load-high"], [10, "--load-some"], [0, "--load-none"]];
const DRAWING = { row: 90, most: 640 };  // pixels of the height

async function drawNetwork(pane, base) {
  const data = await ask(`${base}/network`);
  if (!data) return;
  if (data.sentence) { pane.replaceChildren(make("p", data.sentence)); return; }
  const names = Object.keys(data.by_kind), moments = data.by_kind[names[0]].length, step = (data.to - data.from) / 1e9 / moments;
  const chart = make("div"), drawing = data.vertices.length ? drawingOf(data) : null, said = make("output");
  const busiest = Math.max(0, data.by_kind[names[0]].findIndex((_, moment) => sumAt(data, moment) === Math.max(...Array.from({ length: moments }, (_, other) => sumAt(data, other)))));
  const slider = make("input", undefined, { type: "range", min: 0, max: moments - 1, value: busiest, id: "moment" });
  const label = make("label", "Moment of the step ", { class: "bar", for: "moment" });
  const set = () => {
    const moment = Number(slider.value);
    said.textContent = `${nanoseconds(moment * step * 1e9)} to ${nanoseconds((moment + 1) * step * 1e9)}`;
    if (drawing) drawing.set(moment);
  };
  slider.addEventListener("input", set);
  label.append(slider, said);
  const rows = names.map(name => [name, ...[Math.max, (...all) => all.reduce((sum, value) => sum + value, 0) / all.length].map(reduce => `${Math.round(reduce(...data.by_kind[name]))} %`)]);
  const notes = [
    data.is_described ? "" : "The cluster's file describes no [network]: this is the usual one of its fabric, without oversubscription, and transfers do not slow each other on it.",
    data.vertices.length ? "" : `The drawing is for jobs of up to 512 GPUs; this one has ${data.gpus.toLocaleString("en")}.`,
    data.left_out.length ? `Not counted: ${data.left_out.join(", ")}.` : "",
    "A load is the bytes of collectives over what the link carries; above 100 %, the library moves fewer bytes than a ring, or its price is faster than the datasheet's links.",
  ].filter(Boolean);
  pane.replaceChildren(...(drawing ? [label, drawing.element, loadLegend()] : []), chart, table(["", "most", "mean over the step"], rows),
    ...notes.map(note => make("p", note, { class: "dim" })));
  plot(chart, "Load of the busiest link of each kind", [data.by_kind[names[0]].map((_, moment) => (moment + .5) * step), ...names.map(name => data.by_kind[name])],
    [{ label: "seconds" }, ...names.map(name => ({ label: `${name}, %`, stroke: colourOf(name), width: 2 }))], 1, ["seconds", "% of the bandwidth"]);
  set();
}

// A link's colour goes by its farther end, the same in every job.
const ENDS = { gpu: "compute", nvswitch: "optimizer-state", nic: "input", leaf: "communication", spine: "gradient", core: "buffer", switch: "activation" };
const colourOf = name => getComputedStyle(document.documentElement).getPropertyValue(`--part-${ENDS[name.split(" - ")[1]] || "other"}`).trim();
const sumAt = (data, moment) => Object.values(data.by_kind).reduce((sum, loads) => sum + loads[moment], 0);

function svgPart(tag, attributes, title) {
  const part = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) part.setAttribute(name, value);
  if (title) { part.append(document.createElementNS("http://www.w3.org/2000/svg", "title")); part.firstChild.textContent = title; }
  return part;
}

// Vertices in rows of their kind, GPUs at the bottom; a link's width goes by its bandwidth.
function drawingOf(data) {
  const heights = [...new Set(data.vertices.map(vertex => vertex.y))], height = Math.min(DRAWING.row * heights.length, DRAWING.most), width = 1000;
  const element = svgPart("svg", { viewBox: `0 0 ${width} ${height}`, class: "network", role: "img", "aria-label": `Network of ${data.gpus} GPUs with the load of its links` });
  const at = index => [data.vertices[index].x * width, data.vertices[index].y * height], most = Math.max(...data.links.map(link => link[2]));
  const lines = data.links.map(([from, to, bandwidth]) => {
    const [[x1, y1], [x2, y2]] = [at(from), at(to)], common = { "stroke-width": (4 * Math.sqrt(bandwidth / most)).toFixed(2), fill: "none" };
    const bend = y1 - Math.min(.4 * DRAWING.row, 10 + Math.abs(x2 - x1) / 6);  // an arc: links within a row would hide each other
    const path = y1 === y2 ? `M${x1} ${y1}Q${(x1 + x2) / 2} ${bend} ${x2} ${y2}` : `M${x1} ${y1}L${x2} ${y2}`;
    return svgPart("path", { ...common, d: path }, " ");
  });
  const radius = Math.max(1.5, Math.min(6, width / Math.max(...heights.map(y => data.vertices.filter(vertex => vertex.y === y).length)) / 3));
  const dots = data.vertices.map((vertex, index) => svgPart("circle", { cx: at(index)[0], cy: at(index)[1], r: radius, class: vertex.kind === "gpu" ? "gpu" : "switch" }, vertex.name));
  const names = heights.map(y => {
    const row = data.vertices.filter(vertex => vertex.y === y), kinds = [...new Set(row.map(vertex => vertex.kind))];
    const text = svgPart("text", { x: 4, y: y * height - 14 });
    text.textContent = kinds.map(kind => `${kind} (${row.filter(vertex => vertex.kind === kind).length})`).join(", ");
    return text;
  });
  element.append(...lines, ...dots, ...names);
  const set = moment => data.links.forEach(([from, to, bandwidth, loads], index) => {
    const load = loads[moment], [, colour] = LOAD_STEPS.find(([least]) => load >= least);
    lines[index].setAttribute("class", colour.slice(2));
    lines[index].firstChild.textContent = `${data.vertices[from].name} – ${data.vertices[to].name}: ${load} % of ${(bandwidth / 1e9).toFixed(0)} GB/s`;
  });
  return { element, set };
}

function loadLegend() {
  const legend = make("p", undefined, { class: "legend" });
  [["--load-none", "below 10 %"], ["--load-some", "10 to 50 %"], ["--load-high", "50 to 90 %"], ["--load-full", "90 % and more"]].forEach(([name, text]) => {
    const entry = make("span"), box = make("i"); box.style.background = `var(${name})`; entry.append(box, text); legend.append(entry);
  });
  return legend;
}
