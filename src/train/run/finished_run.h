// finished_run: the result of a run directory that has no step left. Threads: one. Errors: ConfigError, StorageError.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <nlohmann/json.hpp>

#include "storage/checkpoint_store.h"
#include "storage/run_dir.h"

namespace sluice::train {

[[nodiscard]] nlohmann::ordered_json with_run_dir(const storage::RunDir& run_dir,
                                                  const nlohmann::ordered_json& summary);

// Refuses a run that has no step to do, because it would only cut off the records after its checkpoint.
void refuse_to_cut(const storage::CheckpointStore& checkpoints, std::int64_t step, const std::string& source);

// Summary of a run that ended at this step, with its last evaluation; nullopt if it was cut off.
[[nodiscard]] std::optional<nlohmann::ordered_json> summary_of_finished_run(const storage::RunDir& run_dir,
                                                                            std::int64_t total_steps,
                                                                            bool has_ended_early);

}  // namespace sluice::train
