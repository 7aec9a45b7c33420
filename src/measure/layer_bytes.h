// layer_bytes: what the layers of a model keep from forward to backward, what put-off weight gradients wait with, and
// what each part of their work takes while it runs. Threads: one. Errors: those of the layers.
// Not here: what a stage of several layers holds (tune/memory.h).
#pragma once

#include <cstdint>
#include <vector>

#include "measure/layer_bench.h"
#include "profiler/layer_profile.h"

namespace sluice::measure {

// [layer]: lines through neighbouring sizes (micro-batches, in samples, ascending), the first through its half. Sizes
// above `needed` are left out where the device has no memory for them.
[[nodiscard]] std::vector<std::vector<profiler::LayerBytes>> measure_bytes(LayerBench& bench, const Workload& workload,
                                                                           const std::vector<std::int64_t>& sizes,
                                                                           std::int64_t needed);

// Through the layers and back, for each size and one more.
[[nodiscard]] int passes_for_bytes(const device::Device& device);

}  // namespace sluice::measure
