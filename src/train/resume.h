// resume: what a checkpoint's state.json says about the run, and where a run to be resumed is found.
// Not here: tensors (state.h), files (records/).
// Errors: ConfigError when there is nothing to resume or the configuration would change the order of the samples;
// CheckpointError when the state is damaged or of another format.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include <nlohmann/json.hpp>

#include "config/config.h"
#include "core/plan.h"
#include "train/loop.h"
#include "train/records/metrics_writer.h"

namespace sluice::train {

// All of a run's state that is not a tensor.
struct RunState {
  Progress progress;
  std::int64_t optimizer_steps = 0;
  Plan plan;
  MetricsPosition metrics;
  std::string config_toml;

  [[nodiscard]] nlohmann::json to_json() const;
  [[nodiscard]] static RunState from_json(const nlohmann::json& json, const std::string& source);
};

[[nodiscard]] nlohmann::ordered_json plan_json(const Plan& plan);

[[nodiscard]] bool is_checkpoint(const std::filesystem::path& dir);
// The newest whole checkpoint of a run directory.
[[nodiscard]] std::optional<std::filesystem::path> newest_checkpoint(const std::filesystem::path& run);

// Where a run goes on and where it writes.
struct ResumeChoice {
  std::filesystem::path run_dir;                    // empty: a new one with the default name
  std::optional<std::filesystem::path> checkpoint;  // to continue from
  bool continues_run_dir = false;                   // the run directory's own checkpoint: its records are continued
};
// `resume`: "", "auto", a run directory or a checkpoint directory.
[[nodiscard]] ResumeChoice choose_resume(const std::string& resume, const std::filesystem::path& run_dir,
                                         const std::string& config_name);

// Refuses what would make the position in the data meaningless: another seed, batch size or data set.
void check_resumable(const config::Config& config, const RunState& state, const std::string& source);

// The plan of the checkpoint where the configuration leaves the choice open and stages and replicas are the same.
[[nodiscard]] bool plan_can_be_kept(const config::Config& config, const Plan& saved);

}  // namespace sluice::train
