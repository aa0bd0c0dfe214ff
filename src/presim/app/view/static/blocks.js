"use strict";
// Memory by category over the step of any simulated rank; a click, or the slider, lists the blocks of that moment.
const BLOCKS_HEIGHT = 240;  // pixels high

async function blocksOf(base) {
  if (!base.startsWith("api/jobs/")) return [];  // a saved result has no trace
  const first = await ask(`${base}/blocks`);
  if (!first || !first.entries.length) return [];
  const picture = make("div"), list = make("div", undefined, { "aria-live": "polite" });
  const ranks = make("select");
  ranks.append(...first.ranks.map(rank => make("option", rank, { value: rank })));
  const moment = make("input", undefined, { type: "range", min: 0 });
  const rankLabel = make("label", "rank "), momentLabel = make("label", "moment ");
  rankLabel.append(ranks); momentLabel.append(moment);
  const bar = make("p", undefined, { class: "bar" });
  bar.append(rankLabel, momentLabel);
  let data = first, asked = 0;
  const choose = async index => {
    moment.value = index;
    const number = ++asked, answer = await ask(`${base}/blocks?${new URLSearchParams({ rank: data.rank, entry: data.entries[index] })}`);
    if (answer && number === asked) list.replaceChildren(...liveBlocks(answer, data, index));
    drawCategories(picture, data, index, choose);
  };
  const show = () => { moment.max = data.entries.length - 1; return choose(Math.max(0, data.entries.indexOf(data.peak))); };
  moment.addEventListener("input", () => choose(Number(moment.value)));
  ranks.addEventListener("change", async () => { data = await ask(`${base}/blocks?rank=${ranks.value}`) ?? data; show(); });
  new ResizeObserver(() => drawCategories(picture, data, Number(moment.value), choose)).observe(picture);
  await show();
  return [make("h2", "Blocks by category over the step"), bar, picture, list];
}

function liveBlocks(answer, data, index) {
  const stack = block => [block.operator, block.module, block.phase].filter(Boolean).join(" ← ");
  const rows = answer.blocks.map(block => [block.category, gib(block.bytes), stack(block), block.is_freed ? "is freed" : "stays"]);
  const more = answer.count - rows.length;
  return [make("p", `${seconds(data.time_s[index])} into the step rank ${data.rank} holds ${answer.count.toLocaleString("en")} blocks, ${gib(answer.bytes)}.`),
    table(["category", "size", "allocated by", ""], rows, [false, true, false, false]), ...(more > 0 ? [make("p", `${more.toLocaleString("en")} smaller blocks are not listed.`, { class: "dim" })] : [])];
}

// Areas on top of each other in the categories' colours, and a line at the moment.
function drawCategories(box, data, index, choose) {
  const width = box.clientWidth;
  if (!width) return;
  const names = Object.keys(data.categories), ratio = window.devicePixelRatio || 1;
  const canvas = make("canvas", undefined, { role: "img", "aria-label": `Memory of rank ${data.rank} by category over the step` });
  canvas.width = width * ratio; canvas.height = BLOCKS_HEIGHT * ratio; canvas.style.height = `${BLOCKS_HEIGHT}px`;
  const pen = canvas.getContext("2d"), style = getComputedStyle(document.documentElement);
  pen.scale(ratio, ratio); pen.font = "12px system-ui, sans-serif";
  const total = data.entries.map((_, point) => names.reduce((sum, name) => sum + data.categories[name][point], 0));
  const most = Math.max(...total, 1), end = Math.max(data.time_s[data.time_s.length - 1], 1e-9), left = 70, low = BLOCKS_HEIGHT - 20;
  const x = point => left + (width - left - 4) * data.time_s[point] / end, y = size => low - (low - 10) * size / most;
  const before = data.entries.map(() => 0);
  names.forEach(name => {
    pen.fillStyle = style.getPropertyValue(`--part-${name.replaceAll(" ", "-")}`).trim();
    pen.beginPath();
    before.forEach((size, point) => pen.lineTo(x(point), y(size)));
    data.categories[name].forEach((size, point) => { before[point] += size; });
    for (let point = before.length - 1; point >= 0; point--) pen.lineTo(x(point), y(before[point]));
    pen.fill();
  });
  pen.fillStyle = pen.strokeStyle = getComputedStyle(document.body).color;
  for (const share of [0, .5, 1]) pen.fillText(gib(most * share), 0, y(most * share) + 4);
  for (const tick of roundTicks(0, end * 1e9, (width - left) / 110)) pen.fillText(roundMoment(tick), Math.min(left + (width - left - 4) * tick / 1e9 / end, width - 44), BLOCKS_HEIGHT - 4);
  pen.lineWidth = 1.5; pen.beginPath(); pen.moveTo(x(index), 4); pen.lineTo(x(index), low); pen.stroke();
  canvas.addEventListener("click", event => {
    const wanted = (event.offsetX - left) / (width - left - 4) * end;
    const distance = data.time_s.map(time => Math.abs(time - wanted));
    choose(distance.indexOf(Math.min(...distance)));
  });
  box.replaceChildren(canvas, legendOf(names));
}
