// layer_bytes: measures the bytes that layers keep from forward to backward, stash for deferred weight gradients, and
// use while they run. Stages of several layers: tune/memory.h. Threads: one. Errors: those of the layers.
#pragma once

#include <cstdint>
#include <vector>

#include "measure/layer_bench.h"
#include "profiler/layer_profile.h"

namespace sluice::measure {

// [layer]: lines through neighbouring sizes (micro-batches in samples, ascending), the first one through half of the
// first size. Sizes above `needed` are skipped if the device has no memory for them.
[[nodiscard]] std::vector<std::vector<profiler::LayerBytes>> measure_bytes(LayerBench& bench, const Workload& workload,
                                                                           const std::vector<std::int64_t>& sizes,
                                                                           std::int64_t needed);

// Number of passes through all layers for each size, and for one additional size.
[[nodiscard]] int passes_for_bytes(const device::Device& device);

}  // namespace sluice::measure
