"use strict";
// The overview: a row for each simulated rank, coloured by what takes most of each pixel. Bubbles of a pipeline are gaps.
const ROW = 14, GAP = 2, MARGIN = 80;
let overviewWidth = 0;  // of the pane when it was drawn

function redrawOverviewWhenResized(pane) {
  new ResizeObserver(() => {
    if (state.pane === "overview" && pane.clientWidth && pane.clientWidth !== overviewWidth) drawOverview(pane, state.base);
  }).observe(pane);
}

async function drawOverview(pane, base) {
  overviewWidth = pane.clientWidth;
  const pixels = Math.max(200, Math.min(1400, pane.clientWidth - MARGIN));
  const data = await ask(`${base}/overview?pixels=${pixels}`);
  if (!data) return;
  const canvas = make("canvas", undefined, { role: "img", "aria-label": `What ${data.ranks.length} ranks do over the step` });
  const scale = window.devicePixelRatio || 1, height = data.ranks.length * (ROW + GAP) + 4;
  canvas.width = (pixels + MARGIN) * scale; canvas.height = height * scale;
  canvas.style.width = `${pixels + MARGIN}px`; canvas.style.maxWidth = "100%"; canvas.style.height = `${height}px`;
  const pen = canvas.getContext("2d");
  pen.scale(scale, scale);
  pen.font = "11px system-ui, sans-serif"; pen.textBaseline = "middle";
  pen.fillStyle = getComputedStyle(document.body).color;
  data.ranks.forEach((one, place) => pen.fillText(`rank ${one.rank}`, 4, place * (ROW + GAP) + ROW / 2 + 2));
  const kindFills = fills(pen, data.kinds);
  data.ranks.forEach((one, place) => {
    for (let from = 0; from < one.row.length;) {
      let to = from + 1;
      while (to < one.row.length && one.row[to] === one.row[from]) to++;
      if (one.row[from] !== ".") { pen.fillStyle = kindFills[Number(one.row[from])].fill; pen.fillRect(MARGIN + from, place * (ROW + GAP) + 2, to - from, ROW); }
      from = to;
    }
  });
  const legend = legendOf(data.kinds);
  const shares = data.ranks.map(one => [`rank ${one.rank}`, ...data.kinds.map((_, kind) => share(one.row, String(kind))), share(one.row, ".")]);
  const more = data.left_out ? [make("p", `${data.left_out} more ranks were simulated and are not drawn.`, { class: "dim" })] : [];
  pane.replaceChildren(make("p", `The steady step, ${nanoseconds(data.to - data.from)}, of all simulated ranks`, { class: "dim" }), canvas, legend, ...more,
    make("h2", "Share of the step"), table(["", ...data.kinds, "idle"], shares));
}

const share = (row, letter) => row.length ? `${(100 * [...row].filter(one => one === letter).length / row.length).toFixed(0)} %` : "";
