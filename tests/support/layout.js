// What is wrong with the layout of the page: a list of sentences. See support.layout.
(() => {
  const faults = new Set(), root = document.documentElement;
  const where = element => `${element.tagName.toLowerCase()}.${element.className.baseVal ?? element.className}`;
  const start = element => element.textContent.trim().slice(0, 40);
  const isShown = element => element.getClientRects().length > 0;

  function overflow(element) {
    const style = getComputedStyle(element);
    const isBox = style.display !== "inline" && !(element instanceof SVGElement);
    if (isBox && style.overflowX === "visible" && element.scrollWidth > element.clientWidth + 1)
      faults.add(`${where(element)} holds ${element.scrollWidth} in ${element.clientWidth}: ${start(element)}`);
  }

  // One letter a line, or words that are broken although they would fit into a line of eight letters.
  function lines(element, node) {
    const range = document.createRange(), text = node.textContent.trim();
    range.selectNodeContents(node);
    const count = new Set([...range.getClientRects()].map(box => Math.round(box.top))).size;
    const longest = Math.max(...text.split(/\s+/).map(word => word.length));
    if (count > 2 && text.length / count < 3) faults.add(`${where(element)} has ${count} lines of ${text.length} letters: ${start(element)}`);
    else if (count > 3 && text.length / count < Math.min(longest, 8) / 2) faults.add(`${where(element)} breaks words: ${start(element)}`);
    const box = range.getBoundingClientRect();
    const scrolls = element.closest(".scroll, pre, svg, .command, .parts, .bar");
    if (!scrolls && (box.right > root.clientWidth + 1 || box.left < -1)) faults.add(`${where(element)} leaves the window: ${start(element)}`);
  }

  // Marks of one legend: their colours, and of charts the colour of the line and its fill.
  function colours(legend) {
    const names = new Map();
    for (const mark of [...legend.querySelectorAll("i, .u-marker")].filter(isShown)) {
      const style = getComputedStyle(mark), name = mark.parentElement.textContent.trim();
      const colour = mark.matches(".u-marker") ? `${style.borderTopColor} ${style.backgroundColor}` : style.backgroundColor;
      if (names.has(colour)) faults.add(`${name} and ${names.get(colour)} have one colour, ${colour}`);
      names.set(colour, name);
    }
  }

  if (root.scrollWidth > root.clientWidth) faults.add(`the page is ${root.scrollWidth} wide in a window of ${root.clientWidth}`);
  for (const element of document.body.querySelectorAll("*")) {
    if (!isShown(element) || element.closest("canvas, select, script")) continue;
    overflow(element);
    for (const node of element.childNodes) if (node.nodeType === Node.TEXT_NODE && node.textContent.trim().length > 3) lines(element, node);
  }
  document.querySelectorAll(".legend, .u-legend").forEach(colours);
  return [...faults];
})()
