// run_state: all of a run's state that is not a tensor, as state.json of a checkpoint holds it, and where the newest
// checkpoint of a run is. Not here: tensors (engine/state.h), files (storage/), what a resume may change (resume.h).
// Errors: CheckpointError when the state is damaged or of another format, or no checkpoint of a run is whole.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "core/plan.h"
#include "data/loader.h"
#include "engine/state.h"
#include "report/metrics_writer.h"
#include "train/setup/data_identity.h"
#include "train/setup/eval_history.h"
#include "train/setup/plan_change.h"
#include "tune/noise_scale.h"

namespace sluice::train {

// Where a run stands between two steps.
struct Progress {
  std::int64_t steps_done = 0;
  data::Position position;      // of the next batch
  bool evaluation_due = false;  // after these steps, and not done yet
  EvalHistory evaluations;
  tune::NoiseAverage::State noise;  // of the gradients, with train.noise_scale_every_steps
};

// All of a run's state that is not a tensor.
struct RunState {
  Progress progress;
  std::int64_t optimizer_steps = 0;
  engine::UpdateCounts updates = {};  // as engine::State has them; not in checkpoints of earlier versions
  Plan plan;                          // that the run was saved under
  std::vector<PlanChange> changes;    // those of the run, done and to come
  std::vector<double> norms;          // RunPlans::norms
  int processes = 0;                  // of the run that saved it; 0: not known
  nlohmann::json server;              // UpdateSource::state(); null: there was no parameter server
  report::MetricsPosition metrics;
  std::string config_toml;
  std::optional<DataIdentity> data;  // not in checkpoints of earlier versions

  [[nodiscard]] nlohmann::json to_json() const;
  [[nodiscard]] static RunState from_json(const nlohmann::json& json, const std::string& source);
};

[[nodiscard]] nlohmann::ordered_json plan_json(const Plan& plan);

[[nodiscard]] bool is_checkpoint(const std::filesystem::path& dir);

// `dir` itself where it is a checkpoint (it is verified when it is loaded), else the newest whole one of the run
// directory `dir`; nothing where there is none. CheckpointError where there are, but none is whole, and where the run's
// metrics tell of checkpoints that are gone.
[[nodiscard]] std::optional<std::filesystem::path> find_checkpoint(const std::filesystem::path& dir);

}  // namespace sluice::train
