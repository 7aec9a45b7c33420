// Draws a step as rows of boxes over time (SVG), for measured and simulated steps.

const SVG = "http://www.w3.org/2000/svg";
const GANTT_COLOURS = {
  load: "load", forward: "forward", loss: "loss", backward: "backward", input_gradient: "backward", weight_gradient: "weight_gradient",
  send: "transfer", receive: "transfer", host_to_device: "transfer", all_reduce: "allreduce", optimizer: "optimizer" };
const ganttColour = (kind) => GANTT_COLOURS[kind] || "bubble";

function svg(tag, attributes, text) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  if (text !== undefined) element.textContent = text;
  return element;
}

function ticks(length) {
  const rough = length / 6, power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((size) => size >= rough);
  const list = [];
  for (let i = 0; i * step <= length * 1.0001; ++i) list.push(i * step);
  return list;
}

function ganttBox(box, x, y, width, height) {
  const [start, length, kind, label] = box, group = svg("g", {});
  const rect = svg("rect", { x, y, width: Math.max(width, 0.4), height, rx: Math.min(2, width / 4) });
  rect.style.fill = "var(--" + ganttColour(kind) + ")";
  rect.appendChild(svg("title", {}, label + ": " + number(start) + " to " + number(start + length) + " ms (" + number(length, 3) + " ms)"));
  group.appendChild(rect);
  const short = label.replace(/^.* /, "");
  if (width > 8 + 6 * short.length) {
    group.appendChild(svg("text", { x: x + width / 2, y: y + height / 2 + 3.5, "text-anchor": "middle", class: "in" }, short));
  }
  return group;
}

// gantt: {rows: [{name, boxes: [[start, length, kind, label]]}], length_ms}. length: of the axis, shared by pictures to
// compare.
function drawGantt(gantt, length) {
  const names = 150;  // the same in every picture, so that their axes align
  const width = 1100, right = 12, rowHeight = 24, top = 4, plot = width - names - right;
  const height = top + gantt.rows.length * rowHeight + 26;
  const picture = svg("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": "what each stage does when" });
  const xOf = (ms) => names + (ms / length) * plot;
  const bottom = height - 24;
  for (const tick of ticks(length)) {
    picture.appendChild(svg("line", { x1: xOf(tick), x2: xOf(tick), y1: top, y2: bottom, class: "grid" }));
    picture.appendChild(svg("text", { x: xOf(tick), y: bottom + 14, "text-anchor": "middle", class: "axis" }, number(tick) + " ms"));
  }
  gantt.rows.forEach((row, i) => {
    const y = top + i * rowHeight;
    picture.appendChild(svg("text", { x: 0, y: y + 15 }, row.name));
    for (const box of row.boxes) picture.appendChild(ganttBox(box, xOf(box[0]), y + 2, (box[1] / length) * plot, rowHeight - 4));
  });
  const scroll = add(make("div", "scroll"), picture);
  scroll.tabIndex = 0;
  return scroll;
}
