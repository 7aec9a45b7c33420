// partition: the best contiguous cut of a list of layers into stages, from their measured costs. Pure.
// Exact: dynamic programming over (layers, stages), minimising the time of the slowest stage, which bounds a pipeline's
// throughput; among equal cuts the one whose sum of squared stage times is least (the most even).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/layer_cost.h"
#include "core/plan.h"

namespace sluice::tune {

// For micro-batches of so many samples. Requires: 1 <= stages <= costs.size().
[[nodiscard]] Partition balance(std::span<const LayerCost> costs, double micro_batch, int stages);

// Seconds per micro-batch, forward and backward, of each stage under a partition.
[[nodiscard]] std::vector<double> stage_times(std::span<const LayerCost> costs, double micro_batch,
                                              const Partition& partition);

// Bytes of activations that a stage of these layers keeps of one micro-batch from its forward to its backward: its
// input, its output, and what autograd saves between them, each tensor once.
[[nodiscard]] std::uint64_t kept_bytes(std::span<const LayerCost> layers, std::uint64_t micro_batch);

}  // namespace sluice::tune
