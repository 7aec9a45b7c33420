// measure_update: measures the optimizer's update of a stage's weights, by their bytes, while other devices do the
// same. Threads: works in its own threads; the caller waits. Errors: "measuring the optimizer: ...".
#pragma once

#include <cstdint>

#include "core/layer_cost.h"
#include "measure/workload.h"

namespace sluice::measure {

// Fits a line through medians at several sizes up to `largest_bytes` of weights. devices: number that update at once.
[[nodiscard]] AffineCost measure_update(const Workload& workload, std::uint64_t largest_bytes, int devices = 1);

}  // namespace sluice::measure
