// finished_run: what the directory of a run says when no step is left to do. Threads: one. Errors: ConfigError,
// StorageError.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <nlohmann/json.hpp>

#include "storage/checkpoint_store.h"
#include "storage/run_dir.h"

namespace sluice::train {

// The fields of a summary with the run directory, as the command prints them.
[[nodiscard]] nlohmann::ordered_json with_run_dir(const storage::RunDir& run_dir,
                                                  const nlohmann::ordered_json& summary);

// A run without a step to do would only cut the records of the steps that were done after its checkpoint.
void refuse_to_cut(const storage::CheckpointStore& checkpoints, std::int64_t step, const std::string& source);

// What a run that ended at this step, its last evaluation included, has reported; nothing when it was cut off.
[[nodiscard]] std::optional<nlohmann::ordered_json> summary_of_finished_run(const storage::RunDir& run_dir,
                                                                            std::int64_t total_steps,
                                                                            bool has_ended_early);

}  // namespace sluice::train
