#include "train/run/finished_run.h"

#include <vector>

#include "core/error.h"
#include "core/log.h"
#include "core/text.h"
#include "report/metrics_writer.h"

namespace sluice::train {

nlohmann::ordered_json with_run_dir(const storage::RunDir& run_dir, const nlohmann::ordered_json& summary) {
  nlohmann::ordered_json fields{{"run_dir", run_dir.path().string()}};
  fields.update(summary);
  return fields;
}

void refuse_to_cut(const storage::CheckpointStore& checkpoints, std::int64_t step, const std::string& source) {
  const std::vector<std::int64_t> steps = checkpoints.steps();
  if (steps.empty() || steps.front() <= step) return;
  throw ConfigError(source, " is at the last step, and its run has trained on to step ", steps.front(),
                    "; raise train.steps to train from ", source, " again, or evaluate it with sluice eval");
}

std::optional<nlohmann::ordered_json> summary_of_finished_run(const storage::RunDir& run_dir, std::int64_t total_steps,
                                                              bool has_ended_early) {
  const auto summary = report::last_event(run_dir.metrics_file(), "summary");
  if (!summary || summary->value("outcome", "") != "done" || summary->value("steps", -1) != total_steps)
    return std::nullopt;
  log_info("the run in ", run_dir.path().string(), " is complete after ", counted(total_steps, "step"),
           has_ended_early
               ? " and ended early, because evaluations no longer improved; raise train.stop_patience to train on"
               : "; raise train.steps or train.epochs to train on");
  nlohmann::ordered_json fields = *summary;
  fields.erase("event");
  fields.erase("time_s");
  return with_run_dir(run_dir, fields);
}

}  // namespace sluice::train
