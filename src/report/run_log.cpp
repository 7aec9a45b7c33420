#include "report/run_log.h"

#include <set>
#include <utility>

#include "core/error.h"
#include "core/text.h"
#include "report/record_lines.h"
#include "report/record_sums.h"

namespace sluice::report {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

// Compares by the higher main score; for language models, or without a score, by lower loss.
bool is_better(const Json& one, const Json& other) {
  const std::vector<std::string> scores = score_names(one);
  if (!scores.empty() && !one.contains(kPerplexity)) {
    const auto main = number_at(one, scores.front()), other_main = number_at(other, scores.front());
    if (main && other_main) return *main > *other_main;
  }
  const auto loss = number_at(one, "loss"), other_loss = number_at(other, "loss");
  return loss && other_loss && *loss < *other_loss;
}

class Reader {
 public:
  explicit Reader(fs::path dir) { log_.dir = std::move(dir); }

  void add(const Json& line, const std::string& event) {
    ++log_.counts[event];
    log_.time_s = number_at(line, "time_s").value_or(log_.time_s);
    log_.goodput.add(line, event);
    if (event == "step") add_step(line);
    if (event == "eval") add_evaluation(line);
    if (event == "plan") add_plan(line);
    if (event == "fault") log_.fault = line;
    if (event == "fault") log_.ends_in_fault = true;
    if (event == "checkpoint") add_checkpoint(line);
    if (event == "resume") add_resume(line);
    if (event == "summary") log_.summary = line;
    if (event == "step" || event == "plan" || event == "resume") {  // the run continued after its earlier end
      log_.summary = Json::object();
      log_.ranks = log_.kernels = log_.operators = nullptr;
      log_.ends_in_fault = false;
    }
    add_of_others(line, event);
  }

  RunLog finish(const LineDamage& damage) {
    log_.unreadable_lines = damage.unreadable_lines;
    log_.is_torn = damage.is_torn;
    log_.means = sums_.means();
    log_.device_busy = sums_.busy();
    log_.device_busy_mean = sums_.busy_mean();
    log_.timed_steps = sums_.timed_steps();
    log_.timed_step_ms = sums_.timed_step_ms();
    return std::move(log_);
  }

 private:
  void add_of_others(const Json& line, const std::string& event) {
    if (event == "ranks") log_.ranks = line.value("ranks", Json(nullptr));
    if (event == "kernels") log_.kernels = line;
    if (event == "operators") log_.operators = line;
    changes_plan_ = event == "transition";
    if (event == "transition") log_.plan_since = integer_at(line, "step").value_or(log_.plan_since);
    if (event == "ps") log_.server = line;
    if (event == "push") add_push(log_.workers, line);
    if (event == "worker") add_worker_event(log_.workers, line);
  }

  // At a start, or after a change of plan.
  void add_plan(const Json& line) {
    log_.plan = line;
    if (changes_plan_ || log_.steps == 0) return;
    log_.resumed_at = log_.last_step;  // also if processes were lost or have joined
    log_.steps_since_resume = 0;
  }

  void add_step(const Json& line) {
    ++log_.steps;
    ++log_.steps_since_resume;
    log_.last_step = integer_at(line, "step").value_or(log_.last_step);
    if (const auto loss = number_at(line, "loss")) log_.last_loss = loss;
    if (number_at(line, "spans_dropped").value_or(0) > 0) ++log_.incomplete_steps;
    sums_.add(line);
  }

  void add_checkpoint(const Json& line) {
    if (const auto step = integer_at(line, "step")) log_.checkpoints.insert(*step);
  }

  // If the records do not lead up to the checkpoint, it belongs to another run.
  void add_resume(const Json& line) {
    const auto step = integer_at(line, "step");
    if (log_.steps > 0 && step == log_.last_step) log_.checkpoints.insert(*step);
    log_.resumed_at = step;
    log_.steps_since_resume = 0;
  }

  void add_evaluation(const Json& line) {
    if (log_.evaluations.empty()) {
      log_.evaluations.assign(3, line);
    } else if (is_better(line, log_.evaluations[1])) {
      log_.evaluations[1] = line;
    }
    log_.evaluations[2] = line;
  }

  RunLog log_;
  RecordSums sums_;
  bool changes_plan_ = false;  // the last line was a `transition`
};

}  // namespace

void require_run_dir(const fs::path& dir) {
  const std::string name = printable(dir.string());
  const fs::file_status status = status_of(dir);
  if (fs::is_regular_file(status))
    throw ConfigError(name, " is a file; give the run directory, which holds metrics.jsonl");
  if (!fs::is_directory(status))
    throw ConfigError("there is no run directory ", name, "; give the --run-dir of a `sluice train`");
  if (!fs::exists(status_of(dir / "metrics.jsonl")))
    throw ConfigError(name,
                      " has no metrics.jsonl, so it is not a run directory; give the --run-dir of a `sluice train`");
}

std::vector<std::string> score_names(const Json& evaluation) {
  static const std::set<std::string, std::less<>> kOther{"event", "time_s",  "epoch", "step",
                                                         "loss",  "samples", "eval_s"};
  std::vector<std::string> names;
  for (const auto& [name, value] : evaluation.items()) {
    if (number_of(value) && !kOther.contains(name) && !name.starts_with("ema_")) names.push_back(name);
  }
  return names;
}

std::vector<SlotTimes> slot_times(const Json& breakdown) {
  std::vector<SlotTimes> slots;
  if (!breakdown.is_array()) return slots;
  for (const Json& entry : breakdown) {
    const auto replica = integer_at(entry, "replica"), device = integer_at(entry, "stage");
    if (!replica || !device) continue;
    SlotTimes& slot = slots.emplace_back();
    slot.replica = static_cast<int>(*replica);
    slot.device = static_cast<int>(*device);
    slot.steps = integer_at(entry, "steps").value_or(0);
    for (const auto& [name, value] : entry.items()) {
      const auto number = number_of(value);
      if (number && name.ends_with("_ms")) slot.ms[name] = *number;
    }
  }
  return slots;
}

std::string RunLog::outcome() const {
  if (const auto outcome = text_at(summary, "outcome")) return *outcome;
  return ends_in_fault ? "failed" : "unfinished";
}

double RunLog::wall_s() const { return number_at(summary, "wall_s").value_or(time_s); }

std::int64_t RunLog::count(std::string_view event) const {
  const auto found = counts.find(event);
  return found == counts.end() ? 0 : found->second;
}

RunLog read_run_log(const fs::path& run_dir, const TakeRecord& also) {
  require_run_dir(run_dir);
  const fs::path file = run_dir / "metrics.jsonl";
  Reader reader(run_dir);
  const auto take = [&](const Json& line, const std::string& event) {
    reader.add(line, event);
    if (also) also(line, event);
  };
  const LineDamage damage = read_records(file, take, also ? whole_lines_of(file) : 1);
  RunLog log = reader.finish(damage);
  if (log.counts.empty() && log.unreadable_lines > 0)
    throw DataError(printable(file.string()), " holds ", log.unreadable_lines,
                    " lines, but no record of a run; it is damaged or was not written by Sluice: copy it again");
  return log;
}

}  // namespace sluice::report
