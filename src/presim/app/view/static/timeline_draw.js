"use strict";
// The picture of a timeline: ticks, boxes or shares of pixels, arrows, and what is selected.

function drawTimeline(timeline) {
  const { canvas, data, view } = timeline;
  const rows = data.ranks.flatMap(entry => entry.tracks.map((track, number) => ({ rank: entry.rank, number, track })));
  const picture = { timeline, rows, whole: canvas.clientWidth, height: HEAD + rows.length * ROW_STEP, from: view[0], scale: timeline.width / (view[1] - view[0]) };
  Object.assign(picture, penOf(canvas, picture.whole, picture.height));
  coloursOf(timeline, picture.pen);
  drawTicks(picture);
  timeline.hits = [];
  const { pen } = picture;
  rows.forEach(({ rank, number, track }, row) => {
    const y = HEAD + row * ROW_STEP;
    pen.fillStyle = timeline.ink; pen.fillText(fitting(pen, `${rank}: ${track.name}`, NAME - 8), 2, y + 15);
    if (track.boxes) drawBoxes(picture, track, y, rank, number); else drawShares(picture, track.shares, y);
  });
  drawArrows(picture);
  drawSelection(picture);
}

// The canvas cleared, in the size of its box; it is made anew only when that changes.
function penOf(canvas, width, height) {
  const ratio = window.devicePixelRatio || 1, size = [Math.round(width * ratio), Math.round(height * ratio)];
  if (canvas.width !== size[0] || canvas.height !== size[1]) { [canvas.width, canvas.height] = size; canvas.style.height = `${height}px`; }
  const pen = canvas.getContext("2d");
  pen.setTransform(ratio, 0, 0, ratio, 0, 0); pen.clearRect(0, 0, width, height); pen.font = "12px system-ui, sans-serif";
  return { pen };
}

// Fills of kinds, and the colours of the page, looked up anew when the theme or the kinds have changed.
function coloursOf(timeline, pen) {
  const ink = getComputedStyle(document.body).color, key = `${ink} ${timeline.data.kinds}`;
  if (timeline.colours === key) return;
  const style = getComputedStyle(document.documentElement);
  Object.assign(timeline, { colours: key, ink, line: style.getPropertyValue("--line"), accent: style.getPropertyValue("--accent"), fills: fills(pen, timeline.data.kinds) });
  document.getElementById("legend").replaceChildren(...legendOf(timeline.data.kinds).children);
}

function drawTicks({ timeline, pen, whole, height, from, scale }) {
  const begin = timeline.data.span[0], [first, last] = timeline.view;
  for (const tick of roundTicks(first - begin, last - begin, timeline.width / LABEL)) {
    const x = NAME + (tick + begin - from) * scale;
    pen.fillStyle = timeline.line; pen.fillRect(x, HEAD - 4, 1, height);
    const text = roundMoment(tick), room = pen.measureText(text).width;
    pen.fillStyle = timeline.ink; pen.fillText(text, Math.max(NAME, Math.min(x - room / 2, whole - room - 2)), 13);
  }
}

// Boxes narrower than a pixel that follow in the same pixel and colour are drawn once; the letters last, by one ink each.
function drawBoxes({ timeline, pen, from, scale }, track, y, rank, number) {
  const right = NAME + timeline.width, named = [];
  let drawnTo = 0, drawnKind = -1;
  track.boxes.forEach(([start, end, kind, name, module], place) => {
    const x = Math.max(NAME, NAME + (start - from) * scale), edge = Math.min(right, NAME + (end - from) * scale), w = edge - x;
    if (edge < NAME || x > right) return;
    timeline.hits.push({ x, y, w, name, module, from: start, to: end, rank, track: number, index: track.first + place });
    if (w < .6 && kind === drawnKind && x < drawnTo) return;
    pen.fillStyle = timeline.fills[kind].fill; pen.fillRect(x, y, Math.max(w, .6), TRACK);
    drawnTo = x + Math.max(w, .6); drawnKind = kind;
    if (w > 40) named.push([name.slice(0, Math.floor(w / 7)), x + 3, timeline.fills[kind].ink]);
  });
  for (const [text, x, ink] of named) { pen.fillStyle = ink; pen.fillText(text, x, y + 15); }
}

function drawShares({ timeline, pen }, shares, y) {
  const { data, view, width } = timeline;
  const shift = (data.from - view[0]) * width / (view[1] - view[0]), step = width / shares.length * (data.to - data.from) / (view[1] - view[0]);
  timeline.fills.forEach(({ fill }, kind) => {  // colour by colour: setting one costs more than a rectangle
    pen.fillStyle = fill;
    shares.forEach((pixel, place) => {
      const x = NAME + shift + place * step;
      if (!pixel[kind] || x < NAME || x > NAME + width) return;
      let below = 0;
      for (let other = 0; other < kind; other++) below += pixel[other];
      pen.fillRect(x, y + TRACK * (1 - (below + pixel[kind]) / 100), Math.max(step, 1), TRACK * pixel[kind] / 100);
    });
  });
}

function drawArrows(picture) {
  const { timeline, pen } = picture, right = NAME + timeline.width;
  pen.save();
  pen.beginPath(); pen.rect(NAME, 0, timeline.width, picture.height); pen.clip();
  for (const arrow of new Set([...timeline.arrows, ...(timeline.work?.arrows ?? [])])) {
    const ends = [arrow.from, arrow.to].map(([rank, number, , moment]) => ({ row: picture.rows.findIndex(entry => entry.rank === rank && entry.number === number), x: NAME + (moment - picture.from) * picture.scale }));
    const [source, target] = ends.map(({ row, x }) => ({ x, y: HEAD + row * ROW_STEP + TRACK / 2, isDrawn: row >= 0 }));
    if (!source.isDrawn || !target.isDrawn || target.x < NAME || source.x > right) continue;
    drawArrow(pen, source, target, timeline, arrow.kind === "message");
  }
  pen.restore();
}

// A line with a head, on paper so that it stands out from any colour; a message is dashed.
function drawArrow(pen, source, target, timeline, isMessage) {
  const reach = Math.max(8, Math.min(60, Math.abs(target.x - source.x) / 2));
  for (const [colour, width] of [[getPaper(timeline), 4], [timeline.ink, 1.5]]) {
    pen.strokeStyle = pen.fillStyle = colour; pen.lineWidth = width;
    pen.setLineDash(isMessage ? [5, 3] : []);
    pen.beginPath(); pen.moveTo(source.x, source.y);
    pen.bezierCurveTo(source.x + reach, source.y, target.x - reach, target.y, target.x - 3, target.y); pen.stroke();
    pen.setLineDash([]);
    pen.beginPath(); pen.moveTo(target.x, target.y); pen.lineTo(target.x - 7, target.y - 4); pen.lineTo(target.x - 7, target.y + 4); pen.closePath(); pen.fill();
  }
}

function getPaper(timeline) {
  if (timeline.paperOf !== timeline.colours) Object.assign(timeline, { paperOf: timeline.colours, paper: getComputedStyle(document.documentElement).getPropertyValue("--paper") });
  return timeline.paper;
}

// The frame of what is selected or was found, and the range that sums are of.
function drawSelection({ timeline, pen, rows, height, from, scale }) {
  const edge = NAME + timeline.width, x = moment => Math.min(edge, Math.max(NAME, NAME + (moment - from) * scale));
  pen.strokeStyle = timeline.ink; pen.lineWidth = 2;
  const { work, found, range } = timeline;
  const row = work ? rows.findIndex(entry => entry.rank === work.rank && entry.number === work.track)
    : found ? rows.findIndex(entry => entry.rank === found.rank && entry.track.name === found.track) : -1;
  const frame = work ?? found;
  if (row >= 0 && frame.to >= timeline.view[0] && frame.from <= timeline.view[1]) pen.strokeRect(x(frame.from), HEAD + row * ROW_STEP - 1, Math.max(x(frame.to) - x(frame.from), 3), TRACK + 2);
  if (!range) return;
  pen.strokeStyle = pen.fillStyle = timeline.accent;
  pen.globalAlpha = .15; pen.fillRect(x(range[0]), HEAD, x(range[1]) - x(range[0]), height); pen.globalAlpha = 1;
  pen.beginPath();
  for (const moment of range) { pen.moveTo(x(moment), HEAD - 4); pen.lineTo(x(moment), height); }
  pen.stroke();
}

// The text, or as much of it as is this wide.
function fitting(pen, text, width) {
  if (pen.measureText(text).width <= width) return text;
  let end = text.length;
  while (end && pen.measureText(`${text.slice(0, end)}…`).width > width) end--;
  return `${text.slice(0, end)}…`;
}

// Moments of a window at 1, 2 or 5 times a power of ten, at most so many.
function roundTicks(from, to, most) {
  const least = (to - from) / Math.max(1, most), power = 10 ** Math.floor(Math.log10(least));
  const step = [1, 2, 5, 10].map(factor => factor * power).find(size => size >= least);
  const ticks = [];
  for (let tick = Math.ceil(from / step) * step; tick <= to; tick += step) ticks.push(Math.round(tick));
  return ticks;
}

// A round moment without digits that say nothing.
function roundMoment(value) {
  const [size, unit] = [[1e9, "s"], [1e6, "ms"], [1e3, "us"]].find(([size]) => Math.abs(value) >= size) || [1, "ns"];
  return `${Number((value / size).toPrecision(7))} ${unit}`;
}

function nanoseconds(value) {
  const size = Math.abs(value);
  if (size >= 1e9) return `${(value / 1e9).toFixed(2)} s`;
  if (size >= 1e6) return `${(value / 1e6).toFixed(2)} ms`;
  return size >= 1e3 ? `${(value / 1e3).toFixed(1)} us` : `${Math.round(value)} ns`;
}
