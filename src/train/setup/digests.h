// digests: one number each for the weights and the optimizer state of a run after a step, independent of its layout
// (storage/tensor_digest.h). Threads: any.
#pragma once

#include <nlohmann/json.hpp>

#include "engine/layer_digests.h"
#include "storage/checkpoint.h"

namespace sluice::train {

// {"step": n, "weights": "<32 hex digits>", "optimizer": ...}; with averaged weights also "ema". weights: parameters
// and buffers.
[[nodiscard]] nlohmann::ordered_json digests_of(std::int64_t step, const storage::CheckpointContents& contents);

// {"forward": {"<layer>": [<digest of each micro-batch>]}, "backward": {"<parameter>": [...]}, "sum": {"<parameter>":
// <digest>}, "update": ..., "buffers": ...}
[[nodiscard]] nlohmann::ordered_json to_json(const engine::StepDigests& digests);

}  // namespace sluice::train
