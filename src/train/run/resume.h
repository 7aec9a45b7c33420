// resume: what a resumed run may change. Errors: ConfigError if the configuration does not fit; CheckpointError for
// data.
#pragma once

#include <string>

#include "config/config.h"
#include "train/setup/run_state.h"
#include "train/setup/setup.h"

namespace sluice::train {

enum class NewData { kRefused, kAccepted };

// Rejects changes that make the saved tensors or data position meaningless. Warns about others that affect training.
void check_resumable(const config::Config& config, const RunState& state, const std::string& source,
                     NewData new_data = NewData::kRefused);

// With train.reproducible: if other devices or libraries computed the state.
void warn_of_other_arithmetic(const Setup& setup, const RunState& state, const std::string& source);

// Position in the current data. Other training data are rejected unless accepted; then, if their number differs, the
// current epoch ends and the log says so. Other test data give a warning.
[[nodiscard]] Progress progress_in(const Setup& setup, const RunState& state, const std::string& source,
                                   NewData new_data = NewData::kRefused);

[[nodiscard]] std::int64_t planned_steps(const config::TrainConfig& train, std::int64_t batches_per_epoch,
                                         const Progress& progress);

// Steps done plus those of the remaining epochs. Earlier epochs may have had other numbers of batches.
[[nodiscard]] std::int64_t total_steps_after(const Setup& setup, const Progress& progress);

void check_end(std::int64_t total_steps, const RunState& state, const std::string& source);

}  // namespace sluice::train
