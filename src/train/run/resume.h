// resume: what a run that goes on from a checkpoint may change.
// Not here: what the checkpoint says (run_state.h), which run is resumed (resume_choice.h).
// Errors: ConfigError when the configuration does not fit what was saved; CheckpointError when the data do not.
#pragma once

#include <string>

#include "config/config.h"
#include "train/setup/run_state.h"
#include "train/setup/setup.h"

namespace sluice::train {

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

}  // namespace sluice::train
