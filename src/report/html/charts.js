// Plots with Chart.js. The data is already thinned; this file adds axes, colours and the selected x axis.

// One colour per run or worker, the same in every plot, distinguishable for colour-blind readers (Okabe and Ito).
const SERIES = 8;
const seriesColour = (i) => colour("series" + (i % SERIES));
const seriesDash = (i) => [[], [7, 3], [2, 3], [9, 3, 2, 3]][Math.floor(i / SERIES) % 4];  // distinguishes series of one colour

const PHASES = [
  ["load", "load"], ["forward", "forward"], ["backward", "backward"], ["transfer", "transfer"],
  ["all-reduce", "allreduce"], ["waiting for others (skew)", "skew"], ["optimizer", "optimizer"], ["bubble", "bubble"],
  ["other idle", "other"]];

const plots = [];  // for each plot that depends on the x axis: a function that refills it
let xAxis = "step";

function themeCharts() {
  Chart.defaults.color = colour("soft");
  Chart.defaults.borderColor = colour("line");
  Chart.defaults.font.family = getComputedStyle(document.body).fontFamily;
  Chart.defaults.font.size = 11;
  Chart.defaults.animation = false;
  Chart.defaults.maintainAspectRatio = false;
  Chart.defaults.plugins.legend.labels.boxWidth = 12;
  Chart.defaults.plugins.legend.labels.boxHeight = 8;
}

const xTitle = () => (xAxis === "step" ? "optimizer step" : "training time (s)");
const pointsOf = (series) => series.value.map((y, i) => ({ x: series[xAxis][i], y }));

function axis(title, more = {}) {
  return { title: { display: Boolean(title), text: title }, grid: { drawTicks: false }, ...more };
}

function canvas(label) {
  const element = make("canvas");
  element.setAttribute("role", "img");
  element.setAttribute("aria-label", label);
  return element;
}

function plotCard(title, config, height) {
  const element = canvas(title), plot = add(make("div", "plot"), element);
  if (height) plot.style.height = height + "px";
  const block = card(title, plot);
  const chart = () => new Chart(element, config);
  return { block, chart };
}

// lines: [{label, series, colour, dash, dots, dashed, stepped}]; y: title; more: further options of the y axis.
function lineCard(title, lines, y, more = {}) {
  if (!lines.length) return null;
  const many = lines.length > 1;
  const dataset = (line) => ({
    label: line.label, data: pointsOf(line.series), borderColor: line.colour, backgroundColor: line.colour,
    borderWidth: 1.6, borderDash: line.dashed ? [5, 4] : line.dash || [], stepped: Boolean(line.stepped), showLine: !line.dotsOnly,
    pointRadius: line.dots || line.series.value.length === 1 ? 2.5 : 0, pointHitRadius: 6 });
  const config = {
    type: "line",
    data: { datasets: lines.map(dataset) },
    options: {
      parsing: false, interaction: { mode: "nearest", axis: "x", intersect: false },
      scales: { x: axis(xTitle(), { type: "linear" }), y: axis(y, more) },
      plugins: { legend: { display: many }, tooltip: { callbacks: { title: (items) => (items.length ? (xAxis === "step" ? "step " : "") + number(items[0].parsed.x, 6) + (xAxis === "step" ? "" : " s") : "") } } },
    },
  };
  // A long legend needs extra height: about four entries per row on a desktop, one on a phone.
  const rows = many ? lines.length / (window.innerWidth > 760 ? 4 : 1.3) : 0;
  const { block, chart } = plotCard(title, config, rows > 3 ? 250 + 20 * Math.ceil(rows) : 0);
  const lost = lines.reduce((sum, line) => sum + (line.series.not_finite || 0), 0);
  if (lost) add(block, make("p", "soft small", "not drawn: " + whole(lost) + " values that are not finite"));
  laterAndAgain(chart, (i) => pointsOf(lines[i].series));
  return block;
}

function areaCard(title, parts) {
  const there = PHASES.filter(([, name]) => (parts[name] || []).some((ms) => ms > 0));
  const points = (name) => parts[name].map((y, i) => ({ x: parts[xAxis][i], y }));
  const config = {
    type: "line",
    data: { datasets: there.map(([label, name]) => ({
      label, data: points(name), fill: true, borderWidth: 0, pointRadius: 0, backgroundColor: colour(name), borderColor: colour(name) })) },
    options: {
      parsing: false, interaction: { mode: "index", intersect: false },
      scales: { x: axis(xTitle(), { type: "linear" }), y: axis("ms a step", { stacked: true, min: 0 }) },
      plugins: { tooltip: { callbacks: { label: (item) => item.dataset.label + ": " + number(item.parsed.y, 3) + " ms" } } },
    },
  };
  const { block, chart } = plotCard(title, config, 300);
  laterAndAgain(chart, (i) => points(there[i][1]));
  return block;
}

// Stacked bars. rows: names; stacks: [{label, colour, values}]; lying: horizontal bars; step: tick distance, default
// automatic.
function barCard(title, rows, stacks, unit, text, lying = true, step = undefined) {
  const value = lying ? "x" : "y", name = lying ? "y" : "x";
  const config = {
    type: "bar",
    data: { labels: rows, datasets: stacks.map((stack) => ({
      label: stack.label, data: stack.values, backgroundColor: stack.colour, maxBarThickness: 30, borderWidth: 0 })) },
    options: {
      indexAxis: lying ? "y" : "x",
      scales: {
        [value]: axis(unit, { stacked: true, beginAtZero: true, ticks: { callback: (tick) => text(tick), maxRotation: 0, stepSize: step } }),
        [name]: axis("", { stacked: true, grid: { display: false }, ticks: { autoSkip: !lying } }) },
      plugins: { legend: { display: stacks.length > 1 },
                 tooltip: { callbacks: { label: (item) => item.dataset.label + ": " + text(item.raw) } } },
    },
  };
  const { block, chart } = plotCard(title, config, lying ? Math.max(190, 110 + 34 * rows.length) : 250);
  later(chart);
  return block;
}

const waiting = [];
const later = (draw) => waiting.push(draw);

// Draws a chart later and refills it whenever the x axis changes; data(i) returns the points of line i.
function laterAndAgain(chart, data) {
  later(() => {
    const made = chart();
    plots.push(() => {
      made.data.datasets.forEach((dataset, i) => { dataset.data = data(i); });
      made.options.scales.x.title.text = xTitle();
      made.update();
    });
  });
}

function drawWaiting() { while (waiting.length) waiting.shift()(); }
