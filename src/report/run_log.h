// run_log: what metrics.jsonl says about a run, read back and averaged over its steps.
// Not here: writing it (metrics_writer.h), tables (run_report.h), config.toml.
// Takes what a run leaves behind whatever became of it: one that still goes on, was killed (a torn last line), was
// resumed, or was made by an older version (absent fields stay absent). A line that is no record is counted and left
// out. Reads line by line; memory does not grow with the steps, only with the checkpoints (8 bytes each).
// Units: as the fields are named (_ms, _s, _bytes, _per_s). Threads: values and pure functions.
// Errors: ConfigError for a path that is no run directory; DataError for one that may not be read, and for a
// metrics.jsonl that cannot be read or holds no record at all.
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

#include "report/record_fields.h"
#include "report/record_lines.h"
#include "report/worker_totals.h"

namespace sluice::report {

// Mean milliseconds per step of one (replica, device). The records, which are older than devices of several stages,
// call the device its stage.
struct SlotTimes {
  int replica = 0;
  int device = 0;
  Numbers ms;
  std::int64_t steps = 0;  // that they are the means of; 0 where older records do not say: all
};

// Reads the list that `summary` holds as "breakdown"; empty when it is none.
[[nodiscard]] std::vector<SlotTimes> slot_times(const nlohmann::ordered_json& breakdown);

struct RunLog {
  std::filesystem::path dir;
  nlohmann::ordered_json plan = nlohmann::ordered_json::object();     // the last `plan`; empty when there is none
  nlohmann::ordered_json summary = nlohmann::ordered_json::object();  // empty unless it is how the records end
  nlohmann::ordered_json fault = nlohmann::ordered_json::object();    // the last `fault`; empty when there is none
  bool ends_in_fault = false;
  // The list of `ranks`, the last `kernels` and `operators`: of the last start, as `summary`; null where there is none.
  nlohmann::ordered_json ranks = nullptr;
  nlohmann::ordered_json kernels = nullptr;
  nlohmann::ordered_json operators = nullptr;
  double time_s = 0;  // of the last record

  std::map<std::string, std::int64_t, std::less<>> counts;  // records by event
  std::int64_t steps = 0;                                   // recorded
  std::int64_t steps_since_resume = 0;                      // those that `summary` tells of
  std::optional<std::int64_t> resumed_at;                   // the step of the last `resume`
  std::int64_t last_step = 0;                               // steps done; 0: none recorded
  std::int64_t incomplete_steps = 0;                        // in which spans were dropped
  std::int64_t plan_since = 0;                              // the step after which the plan last changed; 0: it did not
  // Steps at which one was saved: the lines, and what the run resumed from, whose own line every resume cuts off.
  std::set<std::int64_t> checkpoints;
  // Means over the steps that have the field: of times (_ms) and sync_bytes over the steps; of rates (_per_s, mfu) over
  // their time, so that samples_per_s is all samples by all step time. The parts of a rate are averaged over the same
  // steps as the rate, so that they add up to it: "net/<interface>/sent" and "/received" (net_bytes_per_s),
  // "flops_per_s_by_kind/<kind>".
  Numbers means;
  std::int64_t timed_steps = 0;  // of them those with a breakdown; what their step took in the mean
  double timed_step_ms = 0;
  std::vector<double> device_busy;         // by device, mean over the time; empty when not recorded
  std::optional<double> device_busy_mean;  // over the time of all devices
  std::optional<double> last_loss;         // of training

  nlohmann::ordered_json server = nlohmann::ordered_json::object();  // `ps`; empty where there is no parameter server
  WorkersTotals workers;                                             // of it

  std::vector<nlohmann::ordered_json> evaluations;  // first, best, last `eval`; empty or three
  std::int64_t unreadable_lines = 0;                // besides a torn last one
  bool is_torn = false;                             // the last line ends in the middle

  // "done", "interrupted", ... ; "failed"; "unfinished": it still runs or was killed.
  [[nodiscard]] std::string outcome() const;
  [[nodiscard]] double wall_s() const;
  [[nodiscard]] std::int64_t count(std::string_view event) const;
};

// also: is given every record, too; with it most step lines of a very long run are read by their heads alone
// (record_lines.h), so that means of other fields are those of every n-th step.
[[nodiscard]] RunLog read_run_log(const std::filesystem::path& run_dir, const TakeRecord& also = {});

}  // namespace sluice::report
