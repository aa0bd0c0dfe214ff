"use strict";
// The timeline: asks for a window of tracks and draws it. The server sends single boxes where few are in view, and the
// share that each kind of work takes of every pixel where there are many, so that a million kernels stay fluid. One
// question is on its way at a time, and one picture is drawn a frame, however fast the keys come.
const TRACK = 22, HEAD = 20, NAME = 214, LABEL = 110, ROW_STEP = TRACK + 4;  // pixels
const SHIFT = .2, ZOOM_IN = .6, ZOOM_OUT = 1.6;  // of a key

class Timeline {
  // `ask`: asks the server; `said`: shows a sentence; `detailed`: shows a piece of work, sums of a range, or null.
  constructor(canvas, ask, said, detailed) {
    Object.assign(this, { canvas, ask, said, detailed, view: null, data: null, asked: 0, hits: [], work: null, range: null, arrows: [], areAllArrowsShown: false });
    canvas.addEventListener("wheel", event => this.wheel(event), { passive: false });
    canvas.addEventListener("pointerdown", event => this.pressed(event));
    canvas.addEventListener("pointermove", event => this.moved(event));
    canvas.addEventListener("pointerup", event => this.released(event));
    canvas.addEventListener("pointercancel", () => { this.press = null; });
    canvas.addEventListener("keydown", event => this.key(event));
    new ResizeObserver(() => this.load()).observe(canvas.parentElement);
  }

  show(base, ranks) {
    Object.assign(this, { base, ranks, view: null, work: null, range: null, arrows: [], found: null });
    this.detailed(null);
    return this.load();
  }

  whole() { this.view = null; return this.load(); }

  get width() { return Math.max(50, this.canvas.clientWidth - NAME); }

  question(path, query) { return this.ask(`${this.base}/${path}?${new URLSearchParams(query)}`); }

  // Ask for the window; while an answer is on its way, once more after it. Resolves when the last is drawn.
  load() {
    if (this.base === undefined || !this.canvas.clientWidth) return Promise.resolve();
    this.isStale = true;
    this.loading ??= this.loadLast().finally(() => { this.loading = null; });
    return this.loading;
  }

  async loadLast() {
    while (this.isStale) {
      this.isStale = false;
      this.asked++;
      const query = { ranks: this.ranks.join(","), pixels: Math.round(this.width) };
      if (this.view) { query.from = Math.round(this.view[0]); query.to = Math.round(this.view[1]); }
      const base = this.base, data = await this.question("timeline", query);
      if (!data || base !== this.base) continue;
      this.data = data;
      this.view ??= [data.from, data.to];
      if (this.areAllArrowsShown && !this.isStale) await this.loadArrows(query.ranks);
      this.draw();
    }
  }

  async loadArrows(ranks) {
    const answer = await this.question("arrows", { ranks, from: Math.round(this.view[0]), to: Math.round(this.view[1]) });
    if (!answer) return;
    this.arrows = answer.arrows;
    this.said(answer.count > answer.arrows.length ? `${answer.count.toLocaleString("en")} arrows are in this window: zoom in to see them.` : `${answer.count.toLocaleString("en")} arrows in this window.`);
  }

  showArrows(areShown) { this.areAllArrowsShown = areShown; this.arrows = []; return this.load(); }

  // Draw in the next frame, once.
  draw() {
    if (!this.data || this.frameNumber) return;
    this.frameNumber = requestAnimationFrame(() => { this.frameNumber = 0; drawTimeline(this); });
  }

  momentAt(x) { return this.view[0] + (this.view[1] - this.view[0]) * (x - NAME) / this.width; }

  zoom(factor, x) {
    if (!this.view) return;
    const [from, to] = this.view, at = this.momentAt(Math.max(NAME, x));
    const length = Math.min(1e15, Math.max(100, (to - from) * factor)), first = at - (at - from) * length / (to - from);
    this.view = [first, first + length]; this.draw(); this.load();
  }

  pan(share) {
    if (!this.view) return;
    const by = (this.view[1] - this.view[0]) * share;
    this.view = [this.view[0] + by, this.view[1] + by]; this.draw(); this.load();
  }

  // Show a range of time with a margin of a quarter at both sides.
  focus(from, to) {
    const margin = Math.max(100, to - from) / 4;
    this.view = [from - margin, to + margin]; this.draw(); return this.load();
  }

  wheel(event) {
    if (event.ctrlKey || event.metaKey) { event.preventDefault(); this.zoom(Math.exp(event.deltaY / 400), event.offsetX); }
    else if (event.deltaX) { event.preventDefault(); this.pan(event.deltaX / this.width); }
  }

  pressed(event) {
    if (!this.view) return;
    this.canvas.focus({ preventScroll: true });
    this.canvas.setPointerCapture(event.pointerId);
    this.press = { x: event.offsetX, last: event.offsetX, isPan: event.shiftKey, from: this.momentAt(event.offsetX) };
  }

  moved(event) {
    if (this.press?.isPan) { this.pan((this.press.last - event.offsetX) / this.width); this.press.last = event.offsetX; return; }
    if (this.press) {
      if (Math.abs(event.offsetX - this.press.x) > 4) { this.range = this.ordered(this.press.from, this.momentAt(event.offsetX)); this.draw(); }
      return;
    }
    const hit = this.hitAt(event.offsetX, event.offsetY);
    if (hit) this.tell(hit);
  }

  released(event) {
    const press = this.press;
    this.press = null;
    if (!press || press.isPan) return;
    if (Math.abs(event.offsetX - press.x) > 4) this.sum(this.ordered(press.from, this.momentAt(event.offsetX)));
    else {
      const hit = this.hitAt(event.offsetX, event.offsetY);
      if (hit) this.select(hit.rank, hit.track, { index: hit.index }); else this.clear();
    }
  }

  ordered(one, other) { return [Math.min(one, other), Math.max(one, other)].map(Math.round); }

  hitAt(x, y) { return this.hits.find(hit => y >= hit.y && y < hit.y + TRACK && x >= hit.x && x <= hit.x + Math.max(hit.w, 1)); }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const middle = NAME + this.width / 2;
    const act = {
      ArrowLeft: () => this.pan(-SHIFT), a: () => this.pan(-SHIFT), ArrowRight: () => this.pan(SHIFT), d: () => this.pan(SHIFT),
      "+": () => this.zoom(ZOOM_IN, middle), "=": () => this.zoom(ZOOM_IN, middle), w: () => this.zoom(ZOOM_IN, middle),
      "-": () => this.zoom(ZOOM_OUT, middle), s: () => this.zoom(ZOOM_OUT, middle), 0: () => this.whole(),
      n: () => this.step(1), ".": () => this.step(1), p: () => this.step(-1), ",": () => this.step(-1),
      "]": () => this.follow("from", "to"), "[": () => this.follow("to", "from"),
      f: () => this.focusOnSelection(), m: () => this.work && this.sum([this.work.from, this.work.to]), Escape: () => this.clear(),
      "/": () => at("find").focus(),
    }[event.key];
    if (act) { event.preventDefault(); act(); }
  }

  focusOnSelection() {
    if (this.range) this.focus(...this.range); else if (this.work) this.focus(this.work.from, this.work.to);
    else this.said("Select work by a click or by n, or a range by dragging; f shows it whole.");
  }

  // The next or last work of the selected stream; without one, the first that is drawn.
  step(by) {
    if (this.work) return this.select(this.work.rank, this.work.track, { index: Math.max(0, this.work.index + by) });
    const [first] = this.hits;
    if (first) return this.select(first.rank, first.track, { index: first.index });
    const rank = this.data?.ranks.find(entry => entry.tracks.length);
    return rank ? this.select(rank.rank, 0, { at: Math.round(this.view[0]) }) : undefined;
  }

  // Go along an arrow of the selected work, to what waited for it or to what it waited for.
  follow(near, far) {
    const { work } = this;
    const arrow = work?.arrows.find(entry => entry[near][0] === work.rank && entry[near][1] === work.track && entry[near][2] === work.index);
    if (!arrow) { this.said(work ? "No arrow leads there from this work." : "Select work first."); return undefined; }
    const [rank, track, index] = arrow[far];
    return this.select(rank, track, { index });
  }

  async select(rank, track, which) {
    const work = await this.question("work", { rank, track, ...which });
    if (!work) return;
    Object.assign(this, { work, range: null, found: null });
    this.detailed(work); this.tell(work);
    const [from, to] = this.view, isSeen = work.to > from && work.from < to;
    if (isSeen) this.draw();
    else { const half = (to - from) / 2, middle = (work.from + work.to) / 2; this.view = [middle - half, middle + half]; this.load(); }
  }

  async sum(range) {
    if (range[1] <= range[0]) return;
    Object.assign(this, { range, work: null, found: null });
    this.draw();
    const sums = await this.question("sums", { ranks: this.ranks.join(","), from: range[0], to: range[1] });
    if (!sums || this.range !== range) return;
    this.detailed(sums); this.said(`${nanoseconds(range[1] - range[0])} are selected.`);
  }

  clear() { Object.assign(this, { work: null, range: null, found: null }); this.detailed(null); this.draw(); }

  tell(hit) { this.said(`${hit.name}${hit.module ? ` in ${hit.module}` : ""}: ${nanoseconds(hit.to - hit.from)}`); }

  // Go to the next work whose name or module has a text; the window keeps its length unless the work is longer.
  async find(text) {
    if (!text || !this.view) return null;
    const after = this.found && this.found.text === text ? this.found.from : Math.round(this.view[0]) - 1;
    const hit = await this.question("find", { ranks: this.ranks.join(","), text, after });
    if (!hit || hit.from === null) { this.found = null; this.draw(); return hit; }
    this.found = { ...hit, text };
    const [begin, end] = this.data.span, size = hit.to - hit.from;
    const length = Math.min(Math.max(size * 40, 1000), end - begin, Math.max(this.view[1] - this.view[0], size * 2));
    this.view = [hit.from - (length - size) / 2, hit.to + (length - size) / 2];
    await this.load();
    return hit;
  }
}
