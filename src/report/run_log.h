// run_log: reads metrics.jsonl of a run and averages over its steps. Accepts a run that still goes on, was killed
// (incomplete last line), was resumed, or was made by an older version (absent fields stay absent). Unreadable lines
// are counted and skipped. Memory grows only with the checkpoints (8 bytes each).
// Units: by field name (_ms, _s, _bytes, _per_s).
// Errors: ConfigError for a path that is not a run directory; DataError for records that cannot be read or are empty.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "report/goodput.h"
#include "report/record_fields.h"
#include "report/record_lines.h"
#include "report/worker_totals.h"

namespace sluice::report {

// Mean milliseconds per step of one (replica, device). The records call the device its stage.
struct SlotTimes {
  int replica = 0;
  int device = 0;
  Numbers ms;
  std::int64_t steps = 0;  // steps in the means; 0: all (older records)
};

// ConfigError unless `dir` is a directory with records.
void require_run_dir(const std::filesystem::path& dir);

[[nodiscard]] std::vector<SlotTimes> slot_times(const nlohmann::ordered_json& breakdown);

struct RunLog {
  std::filesystem::path dir;
  nlohmann::ordered_json plan = nlohmann::ordered_json::object();     // the last `plan`; empty without one
  nlohmann::ordered_json summary = nlohmann::ordered_json::object();  // empty if the records do not end with one
  nlohmann::ordered_json fault = nlohmann::ordered_json::object();    // the last `fault`; empty without one
  bool ends_in_fault = false;
  // From the last start, like `summary`: the list of `ranks`, the last `kernels` and `operators`; null if not recorded.
  nlohmann::ordered_json ranks = nullptr;
  nlohmann::ordered_json kernels = nullptr;
  nlohmann::ordered_json operators = nullptr;
  double time_s = 0;
  Goodput goodput;

  std::map<std::string, std::int64_t, std::less<>> counts;  // records by event
  std::int64_t steps = 0;
  std::int64_t steps_since_resume = 0;  // steps that `summary` covers
  std::optional<std::int64_t> resumed_at;
  std::int64_t last_step = 0;         // completed steps; 0: no step was recorded
  std::int64_t incomplete_steps = 0;  // steps with dropped spans
  std::int64_t plan_since = 0;        // step after which the plan last changed; 0: never
  // Steps with a checkpoint, from its lines and from resumes: each resume cuts off its own checkpoint's line.
  std::set<std::int64_t> checkpoints;
  Numbers means;
  std::int64_t timed_steps = 0;  // steps with a breakdown, and their mean step time
  double timed_step_ms = 0;
  std::vector<double> device_busy;         // by device, mean over time; empty if not recorded
  std::optional<double> device_busy_mean;  // over the time of all devices
  std::optional<double> last_loss;

  nlohmann::ordered_json server = nlohmann::ordered_json::object();  // `ps`; empty without a parameter server
  WorkersTotals workers;

  std::vector<nlohmann::ordered_json> evaluations;  // first, best and last `eval`; empty or three
  std::int64_t unreadable_lines = 0;                // without an incomplete last line
  bool is_torn = false;

  // "done", "interrupted", ..., "failed"; "unfinished": still running or killed.
  [[nodiscard]] std::string outcome() const;
  [[nodiscard]] double wall_s() const;
  [[nodiscard]] std::int64_t count(std::string_view event) const;
};

// Names of the scores of an `eval`, in its order. The first is the main one; kPerplexity marks a language model.
inline constexpr const char* kPerplexity = "perplexity";
[[nodiscard]] std::vector<std::string> score_names(const nlohmann::ordered_json& evaluation);

// also: called with every record as well. Means then cover every n-th step of a very long run (record_lines.h).
[[nodiscard]] RunLog read_run_log(const std::filesystem::path& run_dir, const TakeRecord& also = {});

}  // namespace sluice::report
