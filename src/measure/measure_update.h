// measure_update: what the optimizer's update of a stage's weights costs, with zeroing their gradients, by their bytes,
// on the first device of this process while as many others do the same. Not here: who updates what
// (engine/train_step.h). Threads: works in some of its own; the caller waits. Errors: those of describe_failure(),
// "measuring the optimizer: ...".
#pragma once

#include <cstdint>

#include "core/layer_cost.h"
#include "measure/workload.h"

namespace sluice::measure {

// A line through the medians of several updates at several sizes, up to `largest_bytes` of weights. devices: that
// update at once, as those of a plan do: they share the memory of a machine.
[[nodiscard]] AffineCost measure_update(const Workload& workload, std::uint64_t largest_bytes, int devices = 1);

}  // namespace sluice::measure
