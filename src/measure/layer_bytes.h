// layer_bytes: measures the bytes that layers keep between their actions and use while they run. Threads: one.
#pragma once

#include <cstdint>
#include <vector>

#include "measure/layer_bench.h"
#include "profiler/layer_profile.h"

namespace sluice::measure {

// [layer]: lines through neighbouring sizes (micro-batches in samples, ascending), the first through half of it. Sizes
// above `needed` are skipped if the device has no memory for them.
[[nodiscard]] std::vector<std::vector<profiler::LayerBytes>> measure_bytes(LayerBench& bench, const Workload& workload,
                                                                           const std::vector<std::int64_t>& sizes,
                                                                           std::int64_t needed);

[[nodiscard]] int passes_for_bytes(const device::Device& device);

}  // namespace sluice::measure
