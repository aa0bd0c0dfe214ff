"use strict";
// What the timeline says of the selected work or range, below the picture.

function showDetails(pane, about) {
  pane.hidden = !about;
  if (!about) pane.replaceChildren(); else pane.replaceChildren(...(about.names ? sumsOf(about) : workOf(about)));
}

function workOf(work) {
  const rows = [["stream", `rank ${work.rank}, ${work.stream}`], ["time", nanoseconds(work.to - work.from)], ...(work.module ? [["module", work.module]] : []),
    ...Object.entries(work.details).map(([name, value]) => [name.replaceAll("_", " "), typeof value === "number" ? value.toLocaleString("en") : String(value)])];
  const place = ([rank, track, index]) => ({ rank, track, index });
  const arrows = work.arrows.map(arrow => {
    const isSource = arrow.from[0] === work.rank && arrow.from[1] === work.track && arrow.from[2] === work.index;
    const end = place(isSource ? arrow.to : arrow.from), word = { dependency: ["waited for by work", "waited for work"], message: ["message to work", "message from work"] }[arrow.kind][isSource ? 0 : 1];
    const button = make("button", `${word} of rank ${end.rank}`, { type: "button" });
    button.addEventListener("click", () => picture.select(end.rank, end.track, { index: end.index }));
    return button;
  });
  const bar = make("p", undefined, { class: "bar" });
  bar.append(...arrows);
  return [make("h2", work.name), ...(arrows.length ? [bar] : []), table([], rows, [false, false])];
}

function sumsOf(sums) {
  const length = sums.to - sums.from, kinds = sums.kinds.filter((_, kind) => sums.tracks.some(track => track.ns[kind]));
  const places = kinds.map(name => sums.kinds.indexOf(name));
  const idle = track => Math.max(0, length - track.ns.reduce((sum, value) => sum + value, 0));
  const rows = sums.tracks.filter(track => track.count).map(track => [`${track.rank}: ${track.track}`, track.count.toLocaleString("en"), ...places.map(kind => track.ns[kind] ? nanoseconds(track.ns[kind]) : "–"), nanoseconds(idle(track))]);
  const names = sums.names.map(entry => [entry.name, entry.count.toLocaleString("en"), nanoseconds(entry.ns), nanoseconds(entry.ns / entry.count)]);
  return [make("h2", `${nanoseconds(length)} selected`), table(["rank: stream", "pieces", ...kinds, "idle"], rows),
    make("h2", "By name"), table(["", "pieces", "time", "each"], names), ...(sums.left_out ? [make("p", `${sums.left_out} more names took less.`, { class: "dim" })] : [])];
}
