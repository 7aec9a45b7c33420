// resume: what a checkpoint's state.json says about the run, and what a run that goes on from it may change.
// Not here: tensors (engine/state.h), files (storage/), which run is resumed (resume_choice.h).
// Errors: ConfigError when the configuration does not fit what was saved; CheckpointError when the data do not, when
// the state is damaged or of another format, or no checkpoint of a run is whole.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include <nlohmann/json.hpp>

#include "config/config.h"
#include "core/plan.h"
#include "engine/state.h"
#include "report/metrics_writer.h"
#include "train/data_identity.h"
#include "train/loop.h"
#include "train/plan_changes.h"

namespace sluice::train {

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

// What a resume may change.
enum class NewData { kRefused, kAccepted };

// Refuses what would make the saved tensors or the position in the data meaningless: another model, optimizer, seed,
// batch size or name of the data set. Warns of other settings that the training depends on.
void check_resumable(const config::Config& config, const RunState& state, const std::string& source,
                     NewData new_data = NewData::kRefused);

// Where the run goes on in the data there are now. Other training data than those of the checkpoint are refused; where
// they are accepted and of another number, the epoch that had begun ends there, and the log says so. Another test set
// changes no training: a warning.
[[nodiscard]] Progress progress_in(const Setup& setup, const RunState& state, const std::string& source,
                                   NewData new_data = NewData::kRefused);

// The steps that a run which has come so far will have, whether or not it ends early.
[[nodiscard]] std::int64_t planned_steps(const config::TrainConfig& train, std::int64_t batches_per_epoch,
                                         const Progress& progress);

// The steps of a run that has come so far, and the epochs that train.epochs leaves: those that were done may have had
// another number of batches. The same as setup.total_steps where they had not.
[[nodiscard]] std::int64_t total_steps_after(const Setup& setup, const Progress& progress);

// Refuses a run that would end before the checkpoint.
void check_end(std::int64_t total_steps, const RunState& state, const std::string& source);

// A plan that was made under the settings `was`: where stages, replicas and schedule are the same, and cut, chunks and
// recomputation are what the settings of now ask for, or open in both. order: the text of pipeline.order.
[[nodiscard]] bool plan_can_be_kept(const config::Config& config, const config::Config& was, int processes,
                                    const Plan& saved, const std::string& order = {});

}  // namespace sluice::train
