function section(parent, title, blocks) {
  const there = blocks.filter(Boolean);
  if (there.length) add(parent, title ? make("h2", "", title) : null, ...there);
}

function axisSwitch() {
  const group = make("span", "switch");
  group.setAttribute("role", "group");
  group.setAttribute("aria-label", "x axis");
  const buttons = [["step", "by step"], ["time", "by time"]].map(([name, label]) => {
    const button = make("button", "", label);
    button.type = "button";
    button.addEventListener("click", () => {
      xAxis = name;
      buttons.forEach((other) => other.setAttribute("aria-pressed", String(other === button)));
      plots.forEach((refill) => refill());
    });
    button.setAttribute("aria-pressed", String(name === xAxis));
    return button;
  });
  return add(group, ...buttons);
}

function runSections(parent, run, alone) {
  if (!alone) {
    parent = add(parent, make("div", "run")).lastChild;
    add(parent, make("h2", "", run.name), make("p", "soft wrap", whatRan(run)), make("p", "soft small wrap", run.run_dir), ...notes(run), tiles(run));
  }
  section(parent, "Advice and predictions", advice(run));
  section(parent, "Where the time went", breakdown(run));
  section(parent, "A step, stage by stage", ganttSection(run));
  section(parent, "Parameter server", server(run));
  section(parent, "Freezing, changes of plan, events", timelineSection(run));
  section(parent, "Memory", memory(run));
  section(parent, "Network", network(run));
  section(parent, "Plan", planSection(run));
}

function render(data) {
  const main = document.getElementById("page"), runs = data.runs, alone = runs.length === 1;
  main.textContent = "";
  themeCharts();
  add(main, make("h1", "", alone ? runs[0].name : runs.length + " runs"));
  add(main, make("p", "soft wrap", alone ? whatRan(runs[0]) : runs.map((run) => run.name).join(", ")));
  if (alone) add(main, make("p", "soft small wrap", runs[0].run_dir));
  if (data.refresh_s) add(main, make("p", "soft small", "This page reloads every " + data.refresh_s + " s until the run ends."));
  for (const why of data.left_out) add(main, make("div", "note", "left out: " + why));
  if (alone) add(main, ...notes(runs[0]), tiles(runs[0]));
  else section(main, "Side by side", [comparison(runs)]);
  const heading = add(make("h2", "", "Learning and speed"), axisSwitch());
  const curves = learning(runs);
  if (curves.length) add(main, heading, ...curves);
  for (const run of runs) runSections(main, run, alone);
  add(main, make("p", "soft small", "Written by sluice report. Plots by Chart.js (MIT licence), which is part of this file."));
  drawWaiting();
  document.documentElement.dataset.ready = "yes";
}

const data = readable(JSON.parse(document.getElementById("data").textContent));
render(data);
// Redraws everything when the colour theme changes.
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  for (const chart of Object.values(Chart.instances)) chart.destroy();
  plots.length = 0;
  render(data);
});
