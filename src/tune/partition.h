// partition: the best contiguous cut of a list of layers into stages, from their measured costs. Pure.
// Exact: dynamic programming over (layers, stages), minimising the time of the slowest stage, which bounds a pipeline's
// throughput; among equal cuts the one whose sum of squared stage times is least (the most even).
#pragma once

#include <span>
#include <vector>

#include "core/layer_cost.h"
#include "core/plan.h"

namespace sluice::tune {

// Requires: 1 <= stages <= costs.size().
[[nodiscard]] Partition balance(std::span<const LayerCost> costs, int stages);

// Seconds per micro-batch of each stage under a partition.
[[nodiscard]] std::vector<double> stage_times(std::span<const LayerCost> costs, const Partition& partition);

}  // namespace sluice::tune
