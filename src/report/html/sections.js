// Sections of the page. Each function returns cards, or nothing if a run has no data for it.

function outcomeClass(outcome) {
  return outcome === "done" ? "good" : outcome === "failed" ? "bad" : "warn";
}

function layout(run) {
  const parts = [];
  const count = (value, word) => { if (isNumber(value)) parts.push(whole(value) + " " + word + (value === 1 ? "" : word === "process" ? "es" : "s")); };
  count(run.stages, "stage");
  count(run.replicas, "replica");
  if (run.processes > 1) count(run.processes, "process");
  return parts.join(" × ");
}

function tile(name, value, className) {
  return value === "-" || value === null ? null : add(make("div", "tile"), make("div", "value " + (className || ""), value), make("div", "name", name));
}

function scoreTitle(name) {
  return { top1: "top-1", top5: "top-5" }[name] || name.replace("_", " ");
}

// Of the runs' evaluations, by name: "eval_top1".
function scoreCurves(runs) {
  const names = new Set(runs.flatMap((run) => Object.keys(run.history.curves)));
  return [...names].filter((name) => name.startsWith("eval_") && !["eval_loss", "eval_perplexity"].includes(name))
    .filter((name) => runs.length === 1 || name !== "eval_top5")
    .sort().map((name) => [name, "validation " + scoreTitle(name.slice(5)), { dashed: true, dots: true }]);
}

function tiles(run) {
  return add(make("div", "tiles"),
    tile("outcome", run.outcome === "unfinished" ? "unfinished" : run.outcome, outcomeClass(run.outcome)),
    tile("step" + (isNumber(run.planned_steps) ? " of " + whole(run.planned_steps) : "s"), whole(run.steps)),
    tile("samples a second", number(run.samples_per_s)),
    tile("validation loss", number(run.loss)),
    ...Object.entries(run.scores || {}).filter(([name]) => name !== "top5").map(([name, value]) => tile(scoreTitle(name), name === "perplexity" ? number(value) : percent(value))),
    tile("train loss, last step", number(run.train_loss)),
    tile("devices busy", isNumber(run.device_busy_mean) ? percent(100 * run.device_busy_mean) : "-"),
    tile("MFU", isNumber(run.mfu) ? percent(100 * run.mfu) : "-"),
    tile("wall time", duration(run.wall_s)));
}

function whatRan(run) {
  return [run.model, run.data ? "on " + run.data : null].filter(Boolean).join(" ") + [layout(run), run.schedule].filter(Boolean).map((part) => " · " + part).join("");
}

function notes(run) {
  const list = [];
  if (run.fault) list.push(make("div", "note bad", "fault: " + run.fault));
  for (const note of run.notes) list.push(make("div", "note", note));
  if (run.outcome === "unfinished") list.push(make("div", "note", "the records have no end: the run is still running, or was killed"));
  return list;
}

function allReduceWithoutSkew(run) {
  const means = run.means || {};
  return (means.allreduce_exposed_ms ?? NaN) - (means.skew_ms ?? 0);
}

function comparison(runs) {
  const memory = (run) => bytes((run.peak_memory_bytes || {}).process);
  const of = (run, name) => number((run.means || {})[name], 3);
  return card("", table(
    ["run", "outcome", "model", "layout", "chunks", "schedule", "batch", "steps", "samples/s", "step ms", "busy", "bubble ms", "all-reduce ms", "skew ms", "memory", "top-1", "loss", "wall", "speed-up"],
    runs.map((run) => [
      run.name, { text: run.outcome, className: outcomeClass(run.outcome) }, run.model ?? "-", layout(run) || "-", number(run.chunks), run.schedule ?? "-",
      whole(run.global_batch), whole(run.steps), number(run.samples_per_s), number(run.step_ms),
      isNumber(run.device_busy_mean) ? percent(100 * run.device_busy_mean) : "-",
      number(["fill", "steady", "drain"].reduce((sum, part) => sum + ((run.means || {})["bubble_" + part + "_ms"] ?? NaN), 0), 3),
      number(allReduceWithoutSkew(run), 3), of(run, "skew_ms"), memory(run), percent(run.top1), number(run.loss), duration(run.wall_s),
      isNumber(run.speedup) ? number(run.speedup, 3) + "×" : "-"])));
}

// Curves of several runs in one plot: [name of the curve, label, look].
function curveCard(title, runs, curves, y, more) {
  const lines = [];
  runs.forEach((run, i) => {
    for (const [name, label, look] of curves) {
      const series = run.history.curves[name];
      if (!series) continue;
      const words = runs.length > 1 ? [run.name, curves.length > 1 ? label : ""].filter(Boolean).join(", ") : label;
      const which = runs.length > 1 ? i : curves.findIndex((curve) => curve[0] === name);
      lines.push({ label: words, series, colour: seriesColour(which), dash: seriesDash(which), ...look });
    }
  });
  return lineCard(title, lines, y, more);
}

function learning(runs) {
  return pairs([
    curveCard("Loss", runs, [["loss", "training", {}], ["eval_loss", "validation", { dashed: true, dots: true }]], "loss"),
    curveCard("Accuracy", runs, [["top1", "training top-1", {}], ...scoreCurves(runs)], "%"),
    curveCard("Speed", runs, [["samples_per_s", "samples/s", {}]], "samples/s", { beginAtZero: true }),
    curveCard("Learning rate", runs, [["lr", "learning rate", {}]], "learning rate", { beginAtZero: true })]);
}

function breakdown(run) {
  const blocks = [], times = run.times;
  if (times) {
    const there = PHASES.filter(([, name]) => times.rows.some((row) => row.parts[name] > 0));
    const title = "Where the time of a step went" + (times.of === "all processes" ? "" : times.of === "rank 0" ? (run.processes > 1 ? ", devices of rank 0" : "") : ", mean of the run");
    blocks.push(barCard(title, times.rows.map((row) => row.name),
      there.map(([label, name]) => ({ label, colour: colour(name), values: times.rows.map((row) => row.parts[name] ?? 0) })), "ms a step", (ms) => number(ms, 3)));
    if (times.left_out) blocks.push(make("p", "soft small", "and " + whole(times.left_out) + " places more"));
  }
  if (run.rank_spread) {
    blocks.push(card("Over the processes: load, forward, backward and optimizer", table(["", "mean ms", "slowest", "its ms", "spread ms"],
      run.rank_spread.map((row) => ["stage " + row.stage, number(row.mean_ms), ["rank", row.slowest_rank, row.slowest_host].join(" "), number(row.slowest_ms), number(row.spread_ms)]))));
  }
  if (run.history.parts) blocks.push(areaCard("Over the run", run.history.parts));
  return blocks.concat(longestCalls(run));
}

function longestCalls(run) {
  const { kernels, operators } = run, blocks = [];
  const heading = (what, ms, rest) => what + ": " + number(ms, 3) + " ms a step" + (rest > 0 ? ", of it " + number(rest, 3) + " ms of shorter ones" : "");
  const billions = (value) => (isNumber(value) ? number(value / 1e9, 3) : "-");
  if (kernels) {
    blocks.push(card(heading("Kernels of the GPUs", kernels.kernel_ms, kernels.left_out_ms), table(["kernel", "phase", "layer", "calls a step", "ms a step", "share"],
      kernels.rows.map((row) => [{ text: row.kernel, className: "text" }, row.phase.replaceAll("_", " "), row.layer ?? "-", number(row.calls, 3), number(row.time_ms, 3), percent(100 * row.share)]))));
  }
  if (operators) {
    blocks.push(card(heading("Operators", operators.operator_ms, operators.left_out_ms), table(["operator", "pass", "layer", "calls a step", "self ms a step", "share", "GFLOP/s", "GB/s"],
      operators.rows.map((row) => [{ text: row.operator, className: "text" }, row.pass, row.layer ?? "-", number(row.calls, 3), number(row.self_ms, 3), percent(100 * row.share), billions(row.flops_per_s), billions(row.bytes_per_s)]))));
  }
  return blocks;
}

function ganttSection(run) {
  const gantt = run.gantt || {}, blocks = [];
  const length = Math.max(gantt.measured ? gantt.measured.length_ms : 0, gantt.simulated ? gantt.simulated.length_ms : 0);
  const words = { input_gradient: "input gradient", weight_gradient: "weight gradient", all_reduce: "all-reduce" };
  const kindsOf = (one) => (one ? one.rows.flatMap((row) => row.boxes.map((box) => box[2])) : []);
  const kinds = [...new Set([...kindsOf(gantt.measured), ...kindsOf(gantt.simulated)])];
  const legend = () => keys(kinds.map((kind) => [words[kind] || kind.replaceAll("_", " "), ganttColour(kind)]));
  if (gantt.measured) blocks.push(card(gantt.measured.title, drawGantt(gantt.measured, length), legend()));
  if (gantt.simulated) blocks.push(card(gantt.simulated.title, drawGantt(gantt.simulated, length), gantt.measured ? null : legend()));
  if (gantt.note) blocks.push(make("p", "soft small wrap", gantt.note));
  return blocks;
}

const roundBytes = (largest) => 2 ** Math.max(Math.ceil(Math.log2(largest / 6)), 0);
const most = (devices, kinds) => Math.max(1, ...devices.map((device) => Object.values(kinds[device] || {}).reduce((sum, value) => sum + value, 0)));

function memory(run) {
  const kinds = run.memory_by_kind, peak = run.peak_memory_bytes;
  const blocks = [];
  if (kinds && typeof kinds === "object") {
    const devices = Object.keys(kinds);
    const names = [...new Set(devices.flatMap((device) => Object.keys(kinds[device] || {})))];
    if (devices.length) blocks.push(barCard("Memory of each device when it held most", devices,
      names.map((name, i) => ({ label: name, colour: seriesColour(i), values: devices.map((device) => (kinds[device] || {})[name] ?? 0) })), "", bytes, true, roundBytes(most(devices, kinds))));
  }
  if (peak && typeof peak === "object") {
    blocks.push(card("Peak memory", table(["", "at most"], Object.entries(peak).map(([name, value]) => [name, bytes(value)]))));
  }
  return pairs(blocks);
}

function network(run) {
  const lines = Object.entries(run.history.network).map(([name, series], i) => ({ label: name, colour: seriesColour(i), series }));
  if (!lines.length) return [];
  return [lineCard("Network of rank 0's machine", lines, "bytes/s", { beginAtZero: true, ticks: { callback: rate } })];
}

function planSection(run) {
  const plan = run.plan || {}, config = run.config || {};
  const stages = Array.isArray(plan.stage_list) ? plan.stage_list : [];
  const blocks = [card("Plan", facts([
    ["model", run.model], ["data", run.data], ["parameters", whole(run.parameters)], ["layout", layout(run)], ["schedule", run.schedule],
    ["micro-batches", whole(run.chunks)], ["samples a step", whole(run.global_batch)], ["layers of the stages", Array.isArray(run.partition) ? run.partition.join(" | ") : null],
    ["frozen layers", plan.frozen_layers ? whole(plan.frozen_layers) : null], ["optimizer", config.optimizer], ["learning rate", isNumber(config.lr) ? number(config.lr) : null],
    ["precision", config.precision], ["seed", isNumber(config.seed) ? String(config.seed) : null], ["evaluation", duration(run.evaluation_s)], ["checkpoints", duration(run.checkpoints_s)]]))];
  if (stages.length > 1) {
    blocks.push(card("Stages", table(["stage", "devices", "layers", "parameters", "bytes"], stages.map((stage) => [
      whole(stage.stage), (stage.devices || []).join(", "), layerRange(stage.layers), whole(stage.parameters), bytes(stage.bytes)]))));
  }
  return pairs(blocks);
}

function layerRange(layers) {
  if (!Array.isArray(layers) || !layers.length) return "-";
  return layers.length < 4 ? layers.join(", ") : layers[0] + " to " + layers[layers.length - 1] + " (" + layers.length + ")";
}

function advice(run) {
  const blocks = [];
  if (Array.isArray(run.advice) && run.advice.length) blocks.push(card(isNumber(run.advice_steps) ? `Advice, from the last ${run.advice_steps} step${run.advice_steps === 1 ? "" : "s"}` : "Advice", add(make("ul"), ...run.advice.map((line) => make("li", "", line)))));
  if (run.predictions.length) {
    blocks.push(card("Predicted against measured", table(["step of", "predicted ms", "measured ms", "measured / predicted"], run.predictions.map((row) => [
      { text: row.what, className: "text" }, number(row.predicted_ms), number(row.measured_ms),
      isNumber(row.measured_ms) && row.predicted_ms > 0 ? number(row.measured_ms / row.predicted_ms, 3) : "-"]))));
  }
  return blocks;
}

// Time parts from each worker's own records.
function ownTimes(run) {
  const told = (run.workers || []).filter((worker) => worker.own_records && worker.own_records.pushes > 0);
  if (!told.length) return null;
  const parts = [["load", "load_ms"], ["forward", "forward_ms"], ["backward", "backward_ms"], ["transfer", "transfer_ms"], ["optimizer", "optimizer_ms"],
    ["wait", "wait_ms"], ["stall", "sleep_ms"], ["idle", "idle_ms"], ["step", "step_ms"]];
  return card("Where the workers' time went, from their records: ms of a push (wait and stall are idle time)", table(["worker", "pushes", ...parts.map(([name]) => name)],
    told.map((worker) => [whole(worker.worker), whole(worker.own_records.pushes), ...parts.map(([, field]) => number((worker.own_records.means || {})[field], 3))])));
}

function server(run) {
  const history = run.history, ps = run.ps || {}, blocks = [];
  const unit = ps.clock === "virtual" ? "virtual s" : "s";
  if (run.ps) {
    blocks.push(card("", facts([["servers", isNumber(ps.servers) ? whole(ps.servers) : null], ["policy", ps.policy], ["workers", whole(ps.workers)],
      ["samples of a worker's batch", whole(ps.worker_batch)], ["clock", ps.clock]])));
  }
  if (!history.workers.length) return blocks;
  const lines = (field) => history.workers.filter((worker) => worker[field].value.length).map((worker, i) => ({
    label: "worker " + worker.worker, colour: seriesColour(i), series: worker[field], dots: worker[field].value.length < 100, dotsOnly: field === "staleness" }));
  const cards = [
    lineCard("Staleness of the pushes", lines("staleness"), "updates", { beginAtZero: true, ticks: { precision: 0 } }),
    history.staleness.length ? barCard("How many pushes were how stale", history.staleness.map(([stale]) => (stale >= 64 ? "64+" : String(stale))),
      [{ label: "pushes", colour: colour("accent"), values: history.staleness.map(([, count]) => count) }], "pushes", whole, false) : null,
    lineCard("Batch sizes", lines("examples"), "samples a push", { beginAtZero: true, ticks: { precision: 0 } }),
    lineCard("Compute time of a push", lines("compute_s"), unit, { beginAtZero: true })];
  blocks.push(...pairs(cards));
  if (history.pushes_of_more_workers) blocks.push(make("p", "soft small", "not drawn: " + whole(history.pushes_of_more_workers) + " pushes of further workers"));
  if (Array.isArray(run.workers)) {
    blocks.push(card("Workers", table(["worker", "pushes", "examples", "share", "compute " + unit, "idle " + unit, "send " + unit, "stall " + unit, "staleness", "most", "joined", "left", "failed", "lost", "trouble"], run.workers.map((worker) => [
      whole(worker.worker), whole(worker.pushes), whole(worker.examples), isNumber(worker.share) ? percent(100 * worker.share) : "-", number(worker.compute_s), number(worker.idle_s),
      number(worker.send_s), number(worker.sleep_s), number(worker.staleness, 3), whole(worker.staleness_max), whole(worker.joined), whole(worker.left), whole(worker.failed), whole(worker.lost), { text: worker.trouble ? worker.trouble.why ?? "-" : "-", className: worker.trouble ? "text" : "" }]))));
    blocks.push(ownTimes(run));
  }
  return blocks;
}

function shape(plan) {
  if (!plan) return "-";
  const parts = [];
  for (const [name, word] of [["stages", "stages"], ["replicas", "replicas"], ["chunks", "chunks"], ["frozen_layers", "frozen"]]) if (isNumber(plan[name])) parts.push(plan[name] + " " + (plan[name] === 1 ? word.replace(/s$/, "") : word));
  for (const name of ["partition", "shares"]) if (plan[name]) parts.push((name === "shares" ? "shares " : "layers ") + plan[name].join(" "));
  return parts.join(", ");
}

function happening(line) {
  switch (line.event) {
    case "transition": return shape(line.from) + " → " + shape(line.to) + (isNumber(line.seconds) ? "; took " + duration(line.seconds) : "");
    case "freeze": return line.units_before + " → " + line.units + " of " + line.of_units + " units frozen" + (isNumber(line.predicted_ms) ? "; predicted step " + number(line.predicted_before_ms) + " → " + number(line.predicted_ms) + " ms" : "");
    case "resume": return "went on from " + line.checkpoint;
    case "fault": return line.what;
    case "lost": return "rank " + line.rank + " on " + line.host + ": " + line.cause + "; the next step was done " + number(line.next_step_ms) + " ms later";
    case "joined": return "rank " + line.rank + " on " + line.host + ", " + number(line.wait_ms) + " ms after it connected";
    case "replan": return ["shares", "partition"].filter((what) => line[what]).map((what) => what + " " + line[what + "_before"].join(" ") + " \u2192 " + line[what].join(" ")).join("; ") + (isNumber(line.measured_ms) ? "; step " + number(line.measured_before_ms) + " \u2192 " + number(line.measured_ms) + " ms" : "");
    case "slow": return (isNumber(line.rank) ? "rank " + line.rank + ", " : "") + (line.what === "device" ? "replica " + line.replica + " device " + line.device : line.what) + (line.is_over ? ": as before again" : ": " + number(line.before_ms) + " \u2192 " + number(line.now_ms) + " ms a step") + " since step " + line.since_step;
    case "checkpoint": return line.path + (isNumber(line.save_s) ? "; saved in " + duration(line.save_s) : "");
    case "cache": return "features kept: " + whole(line.hits) + " hits, " + whole(line.misses) + " misses";
    case "worker": return "worker " + line.worker + " " + line.what + (line.why ? ": " + line.why : "");
  }
  return "";
}

function timelineSection(run) {
  const history = run.history, blocks = [];
  const frozen = history.curves.frozen_layers;
  if (frozen && frozen.value.some((count) => count > 0)) {
    blocks.push(lineCard("Frozen layers", [{ label: "frozen layers", colour: seriesColour(0), series: frozen, stepped: true }], "layers", { beginAtZero: true, ticks: { precision: 0 } }));
    if (history.curves.step_ms) blocks.push(lineCard("Time of a step", [{ label: "step", colour: seriesColour(1), series: history.curves.step_ms }], "ms", { beginAtZero: true }));
  }
  const result = pairs(blocks);
  if (history.happenings.length) {
    const rows = history.happenings.map((line) => [whole(line.step), duration(line.time_s), { text: line.event, className: "word" }, { text: happening(line), className: "text" }]);
    result.push(card("What happened on the way", table(["step", "time", "what", ""], rows),
      history.more_happenings ? make("p", "soft small", "and " + whole(history.more_happenings) + " more") : null));
  }
  return result;
}
