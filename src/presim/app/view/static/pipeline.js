"use strict";
// The pipeline diagram: a row for each stage's rank, with the forward and backward passes of micro-batches in their order.
const LEAST_NUMBER = .012;  // share of the width from which on a pass has room for its number

async function drawPipeline(pane, base) {
  const data = await ask(`${base}/pipeline`);
  if (!data) return;
  if (!data.ranks.length) { pane.replaceChildren(make("h2", "No pipeline"), make("p", "The ranks of this job send each other no messages.")); return; }
  const span = data.to - data.from, counts = data.ranks[0].passes.filter(([, , kind]) => kind === 0).length;
  const rows = data.ranks.map(row => {
    const line = make("div", undefined, { class: "lane" }), track = make("div", undefined, { class: "passes", role: "img" });
    track.setAttribute("aria-label", `Rank ${row.rank}: ${row.passes.length} passes, idle ${percentOf(row.idle)} of the step`);
    track.append(...row.passes.map(pass => passBlock(data, pass, span)));
    line.append(make("span", `rank ${row.rank}`), track, make("span", percentOf(row.idle), { class: "number" }));
    return line;
  });
  const head = make("div", undefined, { class: "lane dim" });
  head.append(make("span", ""), make("span", `${nanoseconds(span)}: one step`), make("span", "idle", { class: "number" }));
  const notes = [...(data.is_even ? [] : ["Stages differ in their number of passes: numbers count passes of a rank, not micro-batches."]),
    ...(data.left_out ? [`${data.left_out} more simulated ranks are not drawn.`] : [])];
  pane.replaceChildren(make("h2", "Passes of a step"), make("p", `${counts} forward passes a rank. A number counts the passes of its kind; a chunk of a micro-batch is one. Recomputation belongs to its backward pass.`, { class: "dim" }),
    head, ...rows, legendOf(data.kinds), ...notes.map(note => make("p", note, { class: "dim" })));
}

function passBlock(data, [start, end, kind, number], span) {
  const name = data.kinds[kind], share = (Math.min(end, data.to) - Math.max(start, data.from)) / span;
  const block = make("span", share >= LEAST_NUMBER && name !== "optimizer" ? number : "", { class: `part-${name}`, title: `${name} ${number}: ${nanoseconds(end - start)}` });
  block.style.left = `${100 * (Math.max(start, data.from) - data.from) / span}%`;
  block.style.width = `${100 * share}%`;
  return block;
}

const percentOf = share => `${(100 * share).toFixed(1)} %`;
