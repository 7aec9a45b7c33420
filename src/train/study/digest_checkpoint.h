// digest_checkpoint: the digests of a checkpoint, as train/setup/digests.h gives them for the run. Errors:
// CheckpointError.
#pragma once

#include <filesystem>

#include <nlohmann/json.hpp>

namespace sluice::train {

// dir: a run directory (its newest checkpoint), or one of its checkpoints/step-N.
[[nodiscard]] nlohmann::ordered_json digest_checkpoint(const std::filesystem::path& dir);

}  // namespace sluice::train
