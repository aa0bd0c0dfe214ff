"use strict";
// The timeline: asks for a window of tracks and draws it. The server sends single boxes where few are in view, and the
// share that each kind of work takes of every pixel where there are many, so that a million kernels stay fluid.
const TRACK = 22, HEAD = 20, NAME = 190, LABEL = 110;  // pixels

class Timeline {
  constructor(canvas, ask, said) {
    this.canvas = canvas; this.ask = ask; this.said = said;
    this.view = null; this.data = null; this.asked = 0; this.hits = []; this.chosen = null;
    canvas.addEventListener("wheel", event => { event.preventDefault(); this.zoom(Math.exp(event.deltaY / 400), event.offsetX); }, { passive: false });
    canvas.addEventListener("pointerdown", event => { this.drag = event.offsetX; canvas.setPointerCapture(event.pointerId); });
    canvas.addEventListener("pointerup", () => { this.drag = null; });
    canvas.addEventListener("pointermove", event => this.moved(event));
    canvas.addEventListener("keydown", event => this.key(event));
    new ResizeObserver(() => this.load()).observe(canvas.parentElement);
  }

  show(base, ranks) { this.base = base; this.ranks = ranks; this.view = null; return this.load(); }

  whole() { this.view = null; return this.load(); }

  get width() { return Math.max(50, this.canvas.clientWidth - NAME); }

  async load() {
    if (this.base === undefined || !this.canvas.clientWidth) return;
    const number = ++this.asked;
    const query = { ranks: this.ranks.join(","), pixels: Math.round(this.width) };
    if (this.view) { query.from = Math.round(this.view[0]); query.to = Math.round(this.view[1]); }
    const data = await this.ask(`${this.base}/timeline?${new URLSearchParams(query)}`);
    if (number !== this.asked || !data) return;  // a later window is on its way
    this.data = data; this.view = [data.from, data.to]; this.chosen = null; this.draw();
  }

  zoom(factor, x) {
    if (!this.view) return;
    const [from, to] = this.view, at = from + (to - from) * Math.max(0, x - NAME) / this.width;
    const length = Math.max(100, (to - from) * factor);
    const first = at - (at - from) * length / (to - from);
    this.view = [first, first + length]; this.draw(); this.load();
  }

  pan(share) {
    if (!this.view) return;
    const by = (this.view[1] - this.view[0]) * share;
    this.view = [this.view[0] + by, this.view[1] + by]; this.draw(); this.load();
  }

  key(event) {
    if (event.key === "n" || event.key === "p") { event.preventDefault(); this.step(event.key === "n" ? 1 : -1); return; }
    const done = { ArrowLeft: () => this.pan(-.2), ArrowRight: () => this.pan(.2), "+": () => this.zoom(.6, NAME + this.width / 2),
      "=": () => this.zoom(.6, NAME + this.width / 2), "-": () => this.zoom(1.6, NAME + this.width / 2), 0: () => this.whole() }[event.key];
    if (done) { event.preventDefault(); done(); }
  }

  step(by) {
    if (!this.hits.length) { this.said("Zoom in with + until single boxes are drawn."); return; }
    const size = this.hits.length, from = this.chosen === null ? (by > 0 ? -1 : 0) : this.chosen;
    this.chosen = (from + by + size) % size; this.draw(); this.tell(this.hits[this.chosen]);
  }

  tell(hit) { this.said(`${hit.name}${hit.module ? ` in ${hit.module}` : ""}: ${nanoseconds(hit.ns)}`); }

  moved(event) {
    if (this.drag != null) { this.pan((this.drag - event.offsetX) / this.width); this.drag = event.offsetX; return; }
    const hit = this.hits.find(one => event.offsetY >= one.y && event.offsetY < one.y + TRACK && event.offsetX >= one.x && event.offsetX <= one.x + Math.max(one.w, 1));
    if (hit) this.tell(hit);
  }

  draw() {
    const rows = this.data.ranks.flatMap(one => one.tracks.map(track => ({ rank: one.rank, track })));
    const height = HEAD + rows.length * (TRACK + 4), ratio = window.devicePixelRatio || 1, whole = this.canvas.clientWidth;
    this.canvas.width = whole * ratio; this.canvas.height = height * ratio; this.canvas.style.height = `${height}px`;
    const pen = this.canvas.getContext("2d");
    pen.scale(ratio, ratio); pen.clearRect(0, 0, whole, height); pen.font = "12px system-ui, sans-serif";
    const ink = getComputedStyle(document.body).color;
    this.fills = fills(pen, this.data.kinds);
    document.getElementById("legend").replaceChildren(...legendOf(this.data.kinds).children);
    const [from, to] = this.view, scale = this.width / (to - from);
    pen.fillStyle = ink;
    const line = getComputedStyle(document.documentElement).getPropertyValue("--line");
    for (const tick of roundTicks(from - this.data.span[0], to - this.data.span[0], this.width / LABEL)) {
      const x = NAME + (tick + this.data.span[0] - from) * scale;
      pen.fillStyle = line; pen.fillRect(x, HEAD - 4, 1, height);
      const text = roundMoment(tick), room = pen.measureText(text).width;
      pen.fillStyle = ink; pen.fillText(text, Math.max(NAME, Math.min(x - room / 2, whole - room - 2)), 13);
    }
    this.hits = [];
    rows.forEach(({ rank, track }, row) => {
      const y = HEAD + row * (TRACK + 4);
      pen.fillStyle = ink; pen.fillText(fitting(pen, `${rank}: ${track.name}`, NAME - 8), 2, y + 15);
      if (track.boxes) this.boxes(pen, track.boxes, y, from, scale); else this.shares(pen, track.shares, y);
    });
    const hit = this.chosen === null ? null : this.hits[this.chosen];
    if (this.found) this.frame(pen, rows, from, scale, ink);
    if (hit) { pen.strokeStyle = ink; pen.lineWidth = 2; pen.strokeRect(hit.x, hit.y, Math.max(hit.w, 2), TRACK); }
  }

  // Go to the next work whose name or module has a text; the window keeps its length unless the work is longer.
  async find(text) {
    if (!text || !this.view) return null;
    const after = this.found && this.found.text === text ? this.found.from : -1;
    const hit = await this.ask(`${this.base}/find?${new URLSearchParams({ ranks: this.ranks.join(","), text, after })}`);
    if (!hit || hit.from === null) { this.found = null; this.draw(); return hit; }
    this.found = { ...hit, text };
    const [begin, end] = this.data.span, size = hit.to - hit.from;
    const length = Math.min(Math.max(size * 40, 1000), end - begin, Math.max(this.view[1] - this.view[0], size * 2));
    this.view = [hit.from - (length - size) / 2, hit.to + (length - size) / 2];
    await this.load();
    return hit;
  }

  frame(pen, rows, from, scale, ink) {
    const { rank, track, to } = this.found;
    const row = rows.findIndex(one => one.rank === rank && one.track.name === track);
    if (row < 0) return;
    const left = NAME + (this.found.from - from) * scale, right = NAME + (to - from) * scale;
    if (right < NAME || left > NAME + this.width) return;
    pen.strokeStyle = ink; pen.lineWidth = 2;
    pen.strokeRect(Math.max(left, NAME), HEAD + row * (TRACK + 4) - 1, Math.max(right - Math.max(left, NAME), 3), TRACK + 2);
  }

  boxes(pen, boxes, y, from, scale) {
    for (const [start, end, kind, name, module] of boxes) {
      const left = Math.max(NAME, NAME + (start - from) * scale), right = Math.min(NAME + this.width, NAME + (end - from) * scale);
      if (right < NAME || left > NAME + this.width) continue;
      const w = right - left;
      pen.fillStyle = this.fills[kind].fill; pen.fillRect(left, y, Math.max(w, .6), TRACK);
      if (w > 40) { pen.fillStyle = this.fills[kind].ink; pen.fillText(name.slice(0, Math.floor(w / 7)), left + 3, y + 15); }
      this.hits.push({ x: left, y, w, name, module, ns: end - start });
    }
  }

  shares(pen, shares, y) {
    const step = this.width / shares.length;
    const shift = (this.data.from - this.view[0]) * this.width / (this.view[1] - this.view[0]);
    const stretch = (this.data.to - this.data.from) / (this.view[1] - this.view[0]);
    shares.forEach((pixel, place) => {
      const x = NAME + shift + place * step * stretch;
      if (x < NAME || x > NAME + this.width) return;
      let bottom = y + TRACK;
      pixel.forEach((share, kind) => {
        if (!share) return;
        const h = TRACK * share / 100;
        pen.fillStyle = this.fills[kind].fill; pen.fillRect(x, bottom - h, Math.max(step * stretch, 1), h); bottom -= h;
      });
    });
  }
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
