"use strict";
// Tabs, and the panes that are tables and charts. Texts of jobs are only ever set as text, never as markup.
const PANES = ["summary", "timeline", "overview", "memory", "communication", "network", "pipeline", "power", "roofline"];
const ALL = [...PANES, "comparison", "search", "serving", "report"];
const GIB = 2 ** 30;
const at = id => document.getElementById(id);
const state = { base: "api/jobs/0", pane: "summary", names: PANES };

function make(tag, text, attributes = {}) {
  const made = document.createElement(tag);
  if (text instanceof Node) made.append(text); else if (text !== undefined) made.textContent = text;
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  return made;
}

async function ask(url) {
  const answer = await fetch(url);
  const content = await answer.json();
  at("error").hidden = answer.ok;
  if (answer.ok) return content;
  at("error").textContent = content.error;
  return null;
}

// A table that scrolls by itself where it is too wide. Numbers are aligned right and never wrapped; words are wrapped.
function table(names, rows, isNumber = names.map((_, column) => column > 0)) {
  const made = make("table"), head = make("tr"), scroll = make("div", undefined, { class: "scroll", tabindex: 0, role: "group", "aria-label": "Table" });
  const cell = (tag, text, column, attributes = {}) => make(tag, text, isNumber[column] ? { ...attributes, class: "number" } : attributes);
  if (names.length) { head.append(...names.map((name, column) => cell("th", name, column, { scope: "col" }))); made.append(head); }
  rows.forEach(row => { const line = make("tr"); line.append(...row.map((text, column) => cell("td", text, column))); made.append(line); });
  scroll.append(made);
  return scroll;
}

// A stacked bar and its legend. Each part has a colour and a letter, in the bar where there is room.
function parts(items) {
  const said = items.map(item => `${item.name} ${item.figure}`).join(", ");
  const bar = make("div", undefined, { class: "parts", role: "img", "aria-label": said }), legend = make("p", undefined, { class: "legend" });
  items.forEach(item => {
    const letter = item.letter === "." ? "" : item.letter;
    const piece = make("span", item.share >= .03 ? letter : "", { class: item.css_class });
    piece.style.flexGrow = item.share; piece.title = `${item.name} ${item.figure}`;
    bar.append(piece);
    const entry = make("span");
    entry.append(make("i", letter, { class: item.css_class }), `${item.name} ${item.figure}`); legend.append(entry);
  });
  return [bar, legend];
}

// Each module's own peak while it ran, beside the device's memory.
function modulePeaks(modules, device) {
  const rows = modules.map(one => {
    const bar = make("meter", undefined, { value: one.peak_bytes, max: device, "aria-label": `${one.path} ${one.phase} ${gib(one.peak_bytes)}` });
    return ["\u00a0".repeat(2 * one.depth) + one.path, one.phase, bar, gib(one.peak_bytes), gib(one.new_bytes), one.largest];
  });
  return rows.length ? [make("h2", "Peak while a module ran"), table(["module", "phase", "of the device", "peak", "its own", "most is"], rows, [false, false, false, true, true, false])] : [];
}

const seconds = value => nanoseconds(value * 1e9);
const gib = value => `${(value / GIB).toFixed(2)} GiB`;
const bytes = value => value >= GIB / 100 ? gib(value) : value >= 1 << 20 ? `${(value / (1 << 20)).toFixed(1)} MiB` : `${(value / 1024).toFixed(1)} KiB`;

const draw = {
  async summary(pane, base) {
    const data = await ask(`${base}/summary`);
    if (!data) return;
    const cards = make("div", undefined, { class: "cards" });
    data.headline.forEach(cell => {
      const card = make("div"); card.append(make("span", cell.label), make("b", cell.value), make("span", cell.remark)); cards.append(card);
    });
    const section = (title, ...content) => content.length ? [make("h2", title), ...content] : [];
    const limits = data.limits.map(one => [one.name.replaceAll("_", " "), seconds(one.seconds), `${one.statement} ${one.advice}`]);
    pane.replaceChildren(make("p", `${data.script} · ${data.where}`, { class: "dim" }),
      ...(data.failure.length ? [make("p", data.failure.join(": "), { role: "alert" })] : []), cards,
      ...section("Time of the step", ...(data.time.length ? parts(data.time) : [])),
      ...section("Memory of the device in GiB", ...(data.memory.length ? parts(data.memory) : [])),
      ...section("What limits the step", ...(limits.length ? [table(["", "time", "finding"], limits, [false, true, false])] : [])),
      ...section("Notes", ...data.notes.map(note => make("p", note, { class: "dim" }))));
  },

  async memory(pane, base) {
    const data = await ask(`${base}/memory`);
    if (!data) return;
    const chart = make("div"), blocks = await blocksOf(base);
    pane.replaceChildren(make("p", data.verdict), chart, make("h2", "At the peak, by category, in GiB"), ...(data.parts.length ? parts(data.parts) : []),
      table(["", "bytes", "blocks"], data.by_category.map(one => [one.name.replaceAll("_", " "), gib(one.bytes), one.blocks])), ...blocks, make("h2", "By module"),
      table(["", "bytes", "blocks"], data.by_module.map(one => [one.name, gib(one.bytes), one.blocks])), ...modulePeaks(data.modules || [], data.device));
    const start = data.time_s[0] || 0, capacity = data.time_s.map(() => data.device / GIB);
    plot(chart, "Memory over the step", [data.time_s.map(time => time - start), data.reserved.map(one => one / GIB), data.allocated.map(one => one / GIB), capacity],
      [{ label: "seconds" }, { label: "reserved", stroke: "#f5cad6", fill: "#f5cad655" }, { label: "allocated", stroke: ink(), fill: `${ink()}33` }, { label: "the GPU's", stroke: ink(), dash: [6, 4] }], 1, ["seconds", "GiB"]);
  },

  async communication(pane, base) {
    const data = await ask(`${base}/communication`);
    if (!data) return;
    const rows = data.collectives.map(one => [`${one.kind} · ${one.group} (${one.group_size})`, one.count, bytes(one.bytes), seconds(one.seconds), seconds(one.exposed_s), !one.algorithm_GBps ? "" : one.algorithm_GBps < 1 ? "<1" : one.algorithm_GBps.toFixed(0)]);
    const messages = data.messages.map(([from, to, size]) => [`rank ${from} to rank ${to}`, gib(size)]);
    pane.replaceChildren(make("h2", "Collectives of the step"), table(["", "calls", "bytes", "time", "exposed", "GB/s"], rows),
      ...(messages.length ? [make("h2", "Messages in all"), table(["", "bytes"], messages)] : []));
  },

  async roofline(pane, base) {
    const data = await ask(`${base}/roofline`);
    if (!data) return;
    const points = data.points.filter(one => one.rate).sort((one, other) => one.intensity - other.intensity), chart = make("div");
    const most = [...data.points].sort((one, other) => other.seconds - one.seconds).slice(0, 40);
    pane.replaceChildren(chart, make("h2", "Kernels by time, all captured steps"), table(["", "shape", "most often in", "FLOP/byte", "TFLOP/s", "TB/s", "time", "bound", "data fits in"],
      most.map(one => [one.name, one.shape, one.module, ...[one.intensity.toFixed(1), (one.rate / 1e12).toFixed(2)].map(text => one.rate ? text : ""), (one.bytes_per_s / 1e12).toFixed(2), seconds(one.seconds), one.bound, one.level]), [false, false, false, true, true, true, true, false, false]));
    const roofs = data.levels.map(level => roofOf(data.peak, level.bytes_per_s, points)), x = [...points.map(one => one.intensity), ...roofs.flat().map(one => one.intensity)];
    const order = x.map((_, index) => index).sort((one, other) => x[one] - x[other]), column = values => order.map(index => values[index]);
    const rates = of => column([...points.map(one => of === null ? one.rate / 1e12 : null), ...roofs.flatMap((roof, level) => roof.map(one => level === of ? one.rate / 1e12 : null))]);
    const slope = level => `${level.name}, ${(level.bytes_per_s / 1e12).toFixed(2)} TB/s (${level.origin})`;
    plot(chart, `Roofline: peak of ${data.dtype || "no products"}, and the bandwidth of memory levels`, [column(x), rates(null), ...roofs.map((_, level) => rates(level))],
      [{ label: "FLOP/byte" }, { label: "kernels, TFLOP/s", stroke: "#5686f2", paths: () => null, points: { show: true, size: 7 } },
        ...data.levels.map((level, index) => ({ label: slope(level), stroke: ROOFS[index] || ink(), dash: [[6, 4], [2, 3], []][index], spanGaps: true, points: { show: false } }))], 3, ["FLOP/byte", "TFLOP/s"]);
  },

  async power(pane, base) {
    const data = await ask(`${base}/power`);
    if (!data) return;
    if (!data.energy) { pane.replaceChildren(make("p", "The power limit of this GPU is not known, or no step completed.")); return; }
    const chart = make("div"), limit = data.time_s.map(() => data.energy.limit_watts);
    pane.replaceChildren(make("p", data.sentence), chart, make("h2", "By class of work"), table(["", "time", "watts", "joules"],
      data.energy.parts.map(one => [one.name, seconds(one.seconds), one.watts.toFixed(0), one.joules.toFixed(1)])));
    plot(chart, "Power of one GPU over the step", [data.time_s, data.watts, limit],
      [{ label: "seconds" }, { label: "power", stroke: "#5686f2", fill: "#5686f233" }, { label: "limit", stroke: ink(), dash: [6, 4] }], 1, ["seconds", "watts"]);
  },

  overview: drawOverview, network: drawNetwork, pipeline: drawPipeline, search: drawSearch, serving: drawServing, report: drawReport,

  async comparison(pane) {
    const data = await ask("api/comparison");
    if (!data) return;
    const found = data.differences.flatMap(one => [make("h2", `${data.results[0].label} → ${one.label}`),
      table(["step time", "before", "after", "change"], one.step_time.filter(row => row.after !== row.before).map(row => [row.name, seconds(row.before), seconds(row.after), seconds(row.after - row.before)]))]);
    pane.replaceChildren(table(["", "step time", "memory"], data.results.map(one => [one.label, one.step_time_s == null ? "" : seconds(one.step_time_s), gib(one.peak_reserved_bytes + one.beyond_allocator_bytes)])), ...found);
  },

  async timeline(pane, base) {
    const data = await ask(`${base}/summary`);
    if (!data) return;
    at("ranks").replaceChildren(...data.ranks.map((rank, place) => { const option = make("option", rank, { value: rank }); option.selected = place < 8; return option; }));
    at("ranks").size = Math.min(4, data.ranks.length);
    await picture.show(base, chosenRanks());
  },
};

// The colour of the text, as #rrggbb.
const ink = () => `#${getComputedStyle(document.body).color.match(/\d+/g).slice(0, 3).map(part => Number(part).toString(16).padStart(2, "0")).join("")}`;

// A roof: the slope of a memory level up to the ridge, then the peak; from a little left of the points to a little right of them.
const ROOFS = ["", "#d55e00", "#8b9097"];  // of levels behind the first
function roofOf(peak, bandwidth, points) {
  if (!points.length || !peak) return [];
  const ridge = peak / bandwidth, left = Math.min(points[0].intensity / 2, ridge / 20), right = Math.max(points[points.length - 1].intensity, ridge) * 2;
  return [left, ridge, right].map(intensity => ({ intensity, rate: Math.min(peak, intensity * bandwidth) }));
}

function plot(where, title, values, series, distribution = 1, labels = []) {
  const colour = ink(), line = getComputedStyle(document.documentElement).getPropertyValue("--line");
  const axis = { stroke: colour, grid: { stroke: line, width: 1 }, ticks: { stroke: line, width: 1 } };
  const axes = [0, 1].map(index => labels[index] ? { ...axis, label: labels[index], labelSize: 20 } : axis);
  where.setAttribute("role", "img"); where.setAttribute("aria-label", title);
  const height = 320, drawn = new uPlot({ title, width: where.clientWidth || 900, height, scales: { x: { time: false, distr: distribution }, y: distribution === 1 ? { range: (_, low, high) => [Math.min(0, low), high * 1.05 || 1] } : { distr: distribution } }, axes, series }, values, where);
  new ResizeObserver(() => { if (where.clientWidth) drawn.setSize({ width: where.clientWidth, height }); }).observe(where);
}

const picture = new Timeline(at("canvas"), ask, text => { at("under").textContent = text; }, about => showDetails(at("details"), about));
at("arrows").addEventListener("change", () => picture.showArrows(at("arrows").checked));
at("find").addEventListener("keydown", async event => {
  if (event.key !== "Enter") return;
  const hit = await picture.find(at("find").value.trim());
  if (hit) at("found").textContent = hit.count ? `${hit.count.toLocaleString("en")} in all; Enter shows the next` : "nothing has this name";
});
const chosenRanks = () => [...at("ranks").selectedOptions].map(option => option.value);

async function show(name) {
  state.pane = name;
  for (const tab of at("tabs").children) {
    tab.setAttribute("aria-selected", tab.dataset.pane === name); tab.tabIndex = tab.dataset.pane === name ? 0 : -1;
    if (state.byKey && tab.dataset.pane === name) tab.focus();  // going to an anchor takes the focus away
  }
  state.byKey = false;
  for (const pane of ALL) at(pane).hidden = pane !== name;
  document.body.dataset.ready = "";
  await draw[name](at(name), state.base);
  document.body.dataset.ready = name;
}

function tabs(names) {
  state.names = names;
  at("tabs").replaceChildren(...names.map(name => {
    const tab = make("button", name, { type: "button", role: "tab", "aria-controls": name, "data-pane": name });
    tab.addEventListener("click", () => { location.hash = name; });
    return tab;
  }));
}

async function begin() {
  const listing = await ask("api/jobs");
  if (!listing) return;
  const ofJobs = listing.compared ? [...PANES, "comparison"] : PANES;
  listing.jobs.forEach((label, number) => at("job").append(make("option", label, { value: number })));
  listing.results.forEach((one, number) => at("job").append(make("option", one.label, { value: number, "data-panes": one.panes.join(" ") })));
  const choose = () => {
    const option = at("job").selectedOptions[0];
    state.base = `api/${option.dataset.panes ? "results" : "jobs"}/${option.value}`;
    tabs(option.dataset.panes ? option.dataset.panes.split(" ") : ofJobs);
    return show(named());
  };
  at("job").addEventListener("change", choose);
  at("tabs").addEventListener("keydown", event => {
    const last = state.names.length - 1, place = state.names.indexOf(state.pane);
    const next = { ArrowRight: place === last ? 0 : place + 1, ArrowLeft: place ? place - 1 : last, Home: 0, End: last }[event.key];
    if (next === undefined) return;
    event.preventDefault(); state.byKey = true; location.hash = state.names[next];
  });
  at("ranks").addEventListener("change", () => picture.show(state.base, chosenRanks()));
  at("whole").addEventListener("click", () => picture.whole());
  redrawOverviewWhenResized(at("overview"));
  window.addEventListener("hashchange", () => show(named()));
  const shown = Number(new URLSearchParams(location.search).get("show"));
  if (shown > 0 && shown < at("job").length) at("job").selectedIndex = shown;
  await choose();
}

const named = () => state.names.includes(location.hash.slice(1)) ? location.hash.slice(1) : state.names[0];
begin();
