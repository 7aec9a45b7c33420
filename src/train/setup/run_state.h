// run_state: a run's state without tensors (state.json of a checkpoint), and the search for the newest checkpoint.
// Errors: CheckpointError if the state is damaged or has another format.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "core/plan.h"
#include "data/loader.h"
#include "device/device.h"
#include "engine/state.h"
#include "freeze/policy.h"
#include "report/metrics_writer.h"
#include "train/setup/data_identity.h"
#include "train/setup/eval_history.h"
#include "tune/noise_scale.h"

namespace sluice::train {

struct Progress {
  std::int64_t steps_done = 0;
  data::Position position;
  bool evaluation_due = false;  // the evaluation after these steps is still to come
  EvalHistory evaluations;
  tune::NoiseAverage::State noise;
};

// Predictions are in seconds per step.
struct FreezeRecord {
  std::int64_t epoch = 0;  // first epoch of the new plan, from 0
  int units = 0;           // frozen from this change on
  int units_before = 0;
  int of_units = 0;
  double predicted_before_s = 0;
  double predicted_s = 0;
  double staying_s = 0;                  // predicted with the shape that the run began with
  std::vector<freeze::Term> terms = {};  // inputs of the decision

  bool operator==(const FreezeRecord&) const = default;
};

struct PlanChange {
  std::int64_t after = 0;  // after this number of steps
  Plan plan;
  bool is_refused = false;  // the change failed and the run kept the previous plan
  std::optional<FreezeRecord> freeze = {};

  bool operator==(const PlanChange&) const = default;
};

struct RunState {
  Progress progress;
  std::int64_t optimizer_steps = 0;
  engine::UpdateCounts updates = {};  // see engine::State; empty in checkpoints of earlier versions
  Plan plan;
  std::vector<PlanChange> changes;
  std::vector<double> norms;  // RunPlans::norms
  int processes = 0;          // of the run that saved it; 0: unknown
  std::string arithmetic;     // what the bits depend on besides the configuration (arithmetic_of()); may be empty
  nlohmann::json server;      // UpdateSource::state(); null without a parameter server
  report::MetricsPosition metrics;
  std::string config_toml;
  std::optional<DataIdentity> data;  // nullopt in checkpoints of earlier versions

  [[nodiscard]] nlohmann::json to_json() const;
  [[nodiscard]] static RunState from_json(const nlohmann::json& json, const std::string& source);
};

// The devices and libraries of this process, whose kernels decide the rounding.
[[nodiscard]] std::string arithmetic_of(const std::vector<device::Device>& devices);

[[nodiscard]] nlohmann::ordered_json plan_json(const Plan& plan);
[[nodiscard]] Plan plan_from(const nlohmann::json& json);

[[nodiscard]] bool is_checkpoint(const std::filesystem::path& dir);

// Returns `dir` if it is a checkpoint (not verified), else the newest whole one of run directory `dir`; nullopt if it
// has none. CheckpointError if none is whole, or if the metrics mention checkpoints that are missing.
[[nodiscard]] std::optional<std::filesystem::path> find_checkpoint(const std::filesystem::path& dir);

}  // namespace sluice::train
