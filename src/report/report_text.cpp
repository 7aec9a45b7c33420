// report_text: the text of reports, from the objects that --json prints, so that both agree.
#include <algorithm>
#include <array>
#include <cmath>
#include <set>

#include "core/concat.h"
#include "core/text.h"
#include "core/text_table.h"
#include "report/call_table.h"
#include "report/rank_spread.h"
#include "report/run_report.h"
#include "report/time_table.h"

namespace sluice::report {
namespace {

using Json = nlohmann::ordered_json;
using Number = std::optional<double>;

std::string text_or_dash(const Json& object, const char* name) {
  if (const auto text = text_at(object, name)) return *text;
  const Number number = number_at(object, name);
  if (const auto whole = integer_at(object, name); whole && static_cast<double>(*whole) == *number)
    return std::to_string(*whole);
  return number ? (std::isfinite(*number) ? concat(*number) : fixed(*number, 0)) : "-";
}

Number times(Number number, double factor) { return number ? Number(*number * factor) : number; }

const Json& child(const Json& object, const char* name) {
  static const Json kNothing = Json::object();
  const auto found = object.find(name);
  return found == object.end() || !found->is_object() ? kNothing : *found;
}

Json printable_json(const Json& value) {
  if (value.is_string()) return printable(value.get_ref<const std::string&>());
  if (!value.is_structured()) return value;
  Json safe = value.is_array() ? Json::array() : Json::object();
  for (const auto& [name, inner] : value.items()) {
    if (value.is_array()) {
      safe.push_back(printable_json(inner));
    } else {
      safe[printable(name)] = printable_json(inner);
    }
  }
  return safe;
}

RunReport printable_run(RunReport run) {
  RunLog& log = run.log;
  log.dir = printable(log.dir.string());
  for (Json* record : {&log.plan, &log.summary, &log.fault}) *record = printable_json(*record);
  Numbers means;
  for (const auto& [name, mean] : log.means) means[printable(name)] = mean;
  log.means = std::move(means);
  run.config_problem = printable(run.config_problem);
  return run;
}

// "2 stages x 4 replicas over 2 processes"
std::string layout_text(const Json& run) {
  std::string text;
  for (const auto& [before, name, noun] : {std::array{"", "stages", "stage"}, std::array{" x ", "replicas", "replica"},
                                           std::array{" over ", "processes", "process"}}) {
    if (const auto count = integer_at(run, name)) text += concat(text.empty() ? "" : before, counted(*count, noun));
  }
  return text.empty() ? "-" : text;
}

std::string partition_text(const Json& run) {
  const auto list = run.find("partition");
  if (list == run.end() || !list->is_array() || list->size() < 2) return "";
  std::vector<std::string> layers;
  for (const Json& count : *list) layers.push_back(count.dump());
  return concat(", layers ", join(layers, " "));
}

std::string what_ran(const Json& run) {
  const Json& config = child(run, "config");
  std::string text = concat(text_or_dash(run, "model"), " on ", text_or_dash(run, "data"), ": ", layout_text(run),
                            partition_text(run), ", schedule ", text_or_dash(run, "schedule"), ", chunks ",
                            text_or_dash(run, "chunks"), ", global batch ", text_or_dash(run, "global_batch"));
  if (config.empty()) return text;
  return concat(text, ", ", text_or_dash(config, "optimizer"), ", lr ", text_or_dash(config, "lr"), ", ",
                text_or_dash(config, "precision"));
}

std::string outcome_text(const RunLog& log, const Json& run) {
  const std::string outcome = log.outcome();
  std::string text = concat(outcome, outcome == "unfinished" ? " (still running, or killed)" : "", " after step ",
                            log.last_step, "/", text_or_dash(run, "planned_steps"), ", ", human_duration(log.wall_s()));
  if (outcome == "failed") text += concat(": ", text_at(log.fault, "what").value_or("-"));
  return text;
}

std::string network_text(const RunLog& log) {
  std::vector<std::string> interfaces;
  constexpr std::string_view kPrefix = "net/", kSent = "/sent";
  for (const auto& [name, sent] : log.means) {
    if (!name.starts_with(kPrefix) || !name.ends_with(kSent)) continue;
    const std::string interface = name.substr(kPrefix.size(), name.size() - kPrefix.size() - kSent.size());
    const Number received = number_in(log.means, concat(kPrefix, interface, "/received"));
    interfaces.push_back(concat(interface, " ", fixed(sent * 1e-6, 2),
                                received ? concat(" sent ", fixed(*received * 1e-6, 2), " received") : ""));
  }
  return interfaces.empty() ? "" : concat(" (", join(interfaces, ", "), ")");
}

std::string flops_text(const RunLog& log) {
  std::vector<std::string> kinds;
  constexpr std::string_view kPrefix = "flops_per_s_by_kind/";
  for (const auto& [name, rate] : log.means) {
    if (name.starts_with(kPrefix)) kinds.push_back(concat(name.substr(kPrefix.size()), " ", fixed(rate * 1e-9, 1)));
  }
  return kinds.empty() ? "" : concat(" (", join(kinds, ", "), ")");
}

bool has_processes(const Json& run) { return integer_at(run, "processes").value_or(1) > 1; }

// True if the run's end, which covers only its last start, has fewer steps than the means.
bool is_partly_old(const RunLog& log) { return log.resumed_at && log.steps != log.steps_since_resume; }

std::string whole_run_text(const RunLog& log) { return concat("whole run (", counted(log.steps, "step"), ")"); }

std::string rates_text(const RunLog& log, const Json& run) {
  std::vector<std::string> parts;
  const auto add = [&](Number number, int decimals, const std::string& before, const std::string& after) {
    if (number) parts.push_back(concat(before, fixed(*number, decimals), after));
  };
  const auto mean = [&](const char* name) { return number_in(log.means, name); };
  const Number flops = number_at(run, "flops_per_s"), mfu = number_at(run, "mfu");
  add(mean("samples_per_s"), 1, "", " samples/s");
  add(mean("step_ms"), 2, "step ", " ms");
  const bool is_busy_of_part = log.timed_steps > 0 && log.timed_steps < log.steps;
  add(times(number_at(run, "device_busy_mean"), 100), 1,
      has_processes(run) ? "devices of rank 0 busy " : "devices busy ",
      is_busy_of_part ? concat(" % (of ", counted(log.timed_steps, "step"), ")") : " %");
  add(mean("allreduce_hidden_ms"), 2, "allreduce hidden ", " ms");
  add(mean("syncs_per_s"), 2, "", " syncs/s");
  add(times(mean("sync_bytes"), 1e-6), 2, "", " MB synchronised a step");
  add(times(mean("net_bytes_per_s"), 1e-6), 2, "network ", concat(" MB/s", network_text(log)));
  add(times(flops, 1e-9), 1, "", concat(" model GFLOP/s", flops_text(log)));
  add(times(mfu, 100), 1, "MFU ", " %");
  if (flops && !mfu) parts.emplace_back("peak unknown");
  return parts.empty() ? "rates: -" : (is_partly_old(log) ? whole_run_text(log) + ": " : "") + join(parts, ", ");
}

std::string times_text(const RunLog& log, const Json& run) {
  if (log.steps == 0) return "where the time went: no step is recorded yet";
  const auto slots = slot_times(run.at("breakdown"));
  Numbers means = log.means;
  if (slots.empty() && log.timed_steps > 0) means["step_ms"] = log.timed_step_ms;
  const std::int64_t recorded = log.timed_steps > 0 ? log.timed_steps : log.steps;
  const std::int64_t steps = slots.empty() ? recorded : log.steps_since_resume;
  std::string which;
  if (log.resumed_at) {
    which = slots.empty() && is_partly_old(log)
                ? concat("of the whole run (", counted(recorded, "step"), ")")
                : concat("since the resume at step ", *log.resumed_at, " (", counted(steps, "step"), ")");
  }
  return time_table(slots, means, steps, integer_at(run, "processes").value_or(1), which);
}

// Values from the run's end cover only its last start.
std::string since_text(const RunLog& log) { return log.resumed_at ? " since the resume" : ""; }

std::string goodput_text(const RunLog& log, const Json& run) {
  if (const std::string text = log.goodput.text(); !text.empty()) return text + "\n";
  const Number evaluation = number_at(run, "evaluation_s"), checkpoints = number_at(run, "checkpoints_s");
  if (!evaluation || !checkpoints) return "";
  return concat("between the steps", since_text(log), ": evaluation ", human_duration(*evaluation), ", checkpoints ",
                human_duration(*checkpoints), "\n");
}

std::string details_text(const Json& run) {
  std::string text;
  for (const std::string& part : {rank_spread_text(run.at("rank_spread")), kernel_table_text(run.at("kernels")),
                                  run_operators_text(run.at("operators"))}) {
    if (!part.empty()) text += part + "\n";
  }
  return text;
}

std::string memory_text(const Json& run) {
  std::vector<std::string> parts;
  for (const auto& [kind, bytes] : child(run, "peak_memory_bytes").items()) {
    if (bytes.is_number_unsigned()) parts.push_back(concat(kind, " ", human_bytes(bytes.get<std::uint64_t>())));
  }
  return parts.empty() ? "-" : join(parts, ", ");
}

// Epochs count from 1 in texts, as in the log.
Number epoch_of(const Json& evaluation) {
  const Number epoch = number_at(evaluation, "epoch");
  return epoch ? Number(*epoch + 1) : epoch;
}

std::string title_of(const std::string& score) {
  if (score == "top1") return "top-1 %";
  return score == "top5" ? "top-5 %" : score;
}

// "top1", or another one that the runs have, so that a column fits all.
std::string score_to_compare(std::span<const RunReport> runs) {
  for (const RunReport& run : runs) {
    if (run.log.evaluations.empty()) continue;
    std::vector<std::string> names = score_names(run.log.evaluations[2]);
    std::erase(names, kPerplexity);
    if (!names.empty()) return names.front();
  }
  return "top1";
}

std::string evaluations_text(const RunLog& log) {
  if (log.evaluations.empty()) return "evaluations: none";
  std::vector<std::string> scores = score_names(log.evaluations[2]);
  const bool is_text = std::erase(scores, kPerplexity) > 0;
  std::vector<TextRow> rows{{"evaluation", "step", "epoch"}};
  for (const std::string& score : scores) rows.front().push_back(title_of(score));
  for (const char* title : {"loss", "samples"}) rows.front().emplace_back(title);
  if (is_text) rows.front().emplace_back(kPerplexity);
  constexpr std::array kNames{"first", "best", "last"};
  for (std::size_t i = 0; i < kNames.size(); ++i) {
    const Json& eval = log.evaluations[i];
    TextRow& row = rows.emplace_back(TextRow{kNames[i], cell(number_at(eval, "step"), 0), cell(epoch_of(eval), 0)});
    for (const std::string& score : scores) row.push_back(cell(number_at(eval, score), 2));
    row.push_back(cell(number_at(eval, "loss"), 4));
    row.push_back(cell(number_at(eval, "samples"), 0));
    if (is_text) row.push_back(cell(number_at(eval, kPerplexity), 2));
  }
  return text_table(rows, std::array{Align::kLeft, Align::kRight});
}

std::string counts_text(const RunLog& log) {
  std::vector<std::string> parts{counted(log.count("eval"), "evaluation"),
                                 counted(static_cast<std::int64_t>(log.checkpoints.size()), "checkpoint")};
  for (const char* event : {"resume", "fault", "transition"}) parts.push_back(counted(log.count(event), event));
  if (log.count("lost") > 0) parts.push_back(concat(counted(log.count("lost"), "process"), " lost"));
  if (log.count("joined") > 0) parts.push_back(concat(counted(log.count("joined"), "process"), " joined"));
  return join(parts, ", ");
}

void add_damage(std::vector<std::string>& notes, const LineDamage& damage, const char* file) {
  const std::int64_t lines = damage.unreadable_lines;
  if (lines > 0)
    notes.push_back(
        concat(counted(lines, "line"), " of ", file, " cannot be read and ", lines == 1 ? "is" : "are", " skipped"));
  if (damage.is_torn) notes.push_back(concat("the last line of ", file, " is incomplete and is skipped"));
}

std::string notes_text(const RunReport& run) {
  const RunLog& log = run.log;
  std::string text;
  if (const auto what = text_at(log.fault, "what"); what && !log.ends_in_fault)
    text += concat("\nlast fault, after step ", text_or_dash(log.fault, "step"), ": ", *what);
  for (const std::string& note : record_notes(run)) text += concat("\nnote: ", note);
  return text;
}

std::string server_text(const Json& run) {
  const Json& server = run.at("ps");
  const Json& workers = run.at("workers");
  std::string text;
  if (server.is_object()) {
    const std::int64_t servers = integer_at(server, "servers").value_or(1);
    text = concat(servers == 1 ? "parameter server: " : concat(servers, " parameter servers: "),
                  text_or_dash(server, "policy"), ", ", text_or_dash(server, "workers"), " workers, ",
                  text_or_dash(server, "worker_batch"), " samples each, clock ", text_or_dash(server, "clock"), "\n");
  }
  if (workers.is_array()) text += workers_text(workers, text_at(server, "clock") == "virtual") + "\n";
  return text;
}

std::string advice_text(const RunLog& log, const Json& run) {
  const auto list = run.find("advice");
  if (list == run.end() || !list->is_array()) {
    if (run.at("ps").is_object()) return "advice: - (the workers of a parameter server run the steps)";
    const bool is_off = log.summary.contains("advice") && log.steps_since_resume > 0;
    return is_off ? "advice: - (nothing was recorded: profile.level = \"off\")" : "advice: -";
  }
  if (list->empty()) return "advice: none; no change would save 3 % of the step or more";
  const auto steps = integer_at(run, "advice_steps");
  std::string text =
      concat("advice", since_text(log), steps ? concat(", from the last ", counted(*steps, "step")) : "", ":");
  for (const Json& sentence : *list) text += concat("\n- ", sentence.is_string() ? sentence.get<std::string>() : "-");
  return text;
}

std::vector<std::string> names_of(std::span<const RunReport> runs) {
  std::vector<std::string> names, paths;
  for (const RunReport& run : runs) {
    const std::filesystem::path path = run.log.dir.lexically_normal();
    names.push_back((path.has_filename() ? path : path.parent_path()).filename().string());
    paths.push_back(run.log.dir.string());
  }
  const std::set<std::string> different(names.begin(), names.end());
  const bool all_named = std::ranges::none_of(names, [](const auto& name) { return name.empty() || name == "."; });
  return all_named && different.size() == names.size() ? names : paths;
}

bool has_changed_plan(const RunLog& log) { return log.count("transition") > 0; }

TextRow comparison_row(const std::string& name, const RunLog& log, const Json& run, const std::string& score) {
  const auto mean = [&](const char* field) { return number_in(log.means, field); };
  const auto whole = [&](const char* field) { return cell(number_at(run, field), 0); };
  const Number exposed = mean("allreduce_exposed_ms"), skew = mean("skew_ms");
  const std::string outcome = printable(log.outcome());
  const std::string marked = concat(name, has_changed_plan(log) ? "*" : "");
  return {outcome == "done" ? marked : concat(marked, " (", outcome, ")"),
          text_or_dash(run, "model"),
          whole("devices"),
          whole("processes"),
          whole("stages"),
          whole("replicas"),
          text_or_dash(run, "chunks"),
          text_or_dash(run, "schedule"),
          whole("global_batch"),
          std::to_string(log.last_step),
          cell(mean("samples_per_s"), 1),
          cell(mean("step_ms"), 1),
          cell(times(number_at(run, "device_busy_mean"), 100), 1),
          cell(exposed ? Number(*exposed - skew.value_or(0)) : exposed, 1),
          cell(skew, 1),
          cell(bubble_ms(log.means), 1),
          cell(mean("load_ms"), 1),
          cell(times(number_at(run, "mfu"), 100), 1),
          cell(times(number_at(child(run, "peak_memory_bytes"), "process"), 1.0 / (1 << 20)), 0),
          cell(number_at(child(run, "scores"), score), 2),
          cell(number_at(run, "loss"), 4),
          cell(log.wall_s(), 1),
          cell(number_at(run, "speedup"), 2)};
}

}  // namespace

std::vector<std::string> record_notes(const RunReport& run) {
  const RunLog& log = run.log;
  std::vector<std::string> notes;
  if (const std::int64_t changes = log.count("transition"); changes > 0)
    notes.push_back(concat("the plan changed ", counted(changes, "time"),
                           " (`transition` in metrics.jsonl); the shape ",
                           "is that of the last plan; times and rates cover all plans"));
  if (log.incomplete_steps > 0)
    notes.push_back(concat("the breakdown is incomplete: ", counted(log.incomplete_steps, "step"),
                           " had more spans than the recorder keeps"));
  add_damage(notes, {log.unreadable_lines, log.is_torn}, "metrics.jsonl");
  add_damage(notes, run.worker_damage, "a file in workers/");
  notes.insert(notes.end(), run.worker_problems.begin(), run.worker_problems.end());
  if (!run.config_problem.empty()) notes.push_back(run.config_problem);
  return notes;
}

std::string RunReport::text() const {
  const RunReport safe = printable_run(*this);
  const RunLog& of = safe.log;
  if (of.counts.empty())
    return concat(of.dir.string(), ": no record yet (0 steps)",
                  of.is_torn ? "; the only line of metrics.jsonl is incomplete" : "");
  const Json run = printable_json(safe.json());
  return concat(of.dir.string(), ": ", outcome_text(of, run), "\n", what_ran(run), "\n", times_text(of, run), "\n",
                details_text(run), rates_text(of, run), "\n", server_text(run), goodput_text(of, run), "peak memory",
                since_text(of), ": ", memory_text(run), "\n", counts_text(of), "\n", evaluations_text(of),
                notes_text(safe), "\n", advice_text(of, run));
}

std::string comparison(std::span<const RunReport> runs) {
  const Json json = printable_json(json_of(runs));
  const std::vector<std::string> names = names_of(runs);
  const std::string score = score_to_compare(runs);
  std::vector<TextRow> rows{
      {"run",     "model",  "dev",      "procs",     "stages",
       "repl",    "chunks", "schedule", "batch",     "steps",
       "samples", "step",   "busy",     "allreduce", "skew",
       "bubble",  "load",   "MFU",      "memory",    score == "top1" ? "top-1" : score,
       "loss",    "wall",   "speed-up"},
      {"", "", "", "", "", "", "", "", "", "", "/s", "ms", "%", "ms", "ms", "ms", "ms", "%", "MiB", "%", "", "s", ""}};
  for (std::size_t i = 0; i < runs.size(); ++i)
    rows.push_back(comparison_row(printable(names[i]), runs[i].log, json.at("runs").at(i), score));
  constexpr Align kLeft = Align::kLeft, kRight = Align::kRight;
  const std::string table =
      text_table(rows, std::array{kLeft, kLeft, kRight, kRight, kRight, kRight, kRight, kLeft, kRight},
                 /*gap=*/1);
  if (std::ranges::none_of(runs, has_changed_plan, &RunReport::log)) return table;
  return concat(table,
                "\n* the plan changed during the run: the shape is that of the last plan; times and rates cover "
                "all plans");
}

}  // namespace sluice::report
