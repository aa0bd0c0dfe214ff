"use strict";
// Colours of kinds of work on canvases, from palette.css, which all pages share. Hatching tells exchanges and copies
// from compute without colours.
const HATCHED = ["communication", "copy"];

// Fills and inks of kinds by their place in a list of names.
function fills(pen, names) {
  const style = getComputedStyle(document.documentElement);
  return names.map(name => {
    const colour = style.getPropertyValue(`--part-${name}`).trim();
    return { fill: HATCHED.includes(name) ? hatching(pen, colour) : colour, ink: inkOn(colour) };
  });
}

function hatching(pen, colour) {
  const tile = document.createElement("canvas"), size = 6;
  tile.width = tile.height = size;
  const tilePen = tile.getContext("2d");
  tilePen.fillStyle = colour; tilePen.fillRect(0, 0, size, size);
  tilePen.strokeStyle = "rgba(0, 0, 0, .45)";
  tilePen.beginPath();
  for (const shift of [-size, 0, size]) { tilePen.moveTo(shift, size); tilePen.lineTo(shift + size, 0); }
  tilePen.stroke();
  return pen.createPattern(tile, "repeat");
}

function inkOn(colour) {
  const [red, green, blue] = [1, 3, 5].map(place => parseInt(colour.slice(place, place + 2), 16) / 255).map(part => part <= .04045 ? part / 12.92 : ((part + .055) / 1.055) ** 2.4);
  return .2126 * red + .7152 * green + .0722 * blue > .179 ? "#000000" : "#ffffff";
}

function legendOf(names) {
  const legend = make("p", undefined, { class: "legend" });
  names.forEach(name => { const entry = make("span"); entry.append(make("i", undefined, { class: `part-${name.replaceAll(" ", "-")}` }), name); legend.append(entry); });
  return legend;
}
