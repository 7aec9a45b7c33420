// layer_bytes: what the layers of a model keep from forward to backward, what put-off weight gradients wait with, and
// what each part of their work takes while it runs. Threads: one. Errors: those of the layers.
// Not here: what a stage of several layers holds (tune/memory.h).
#pragma once

#include <cstdint>
#include <vector>

#include "core/layer_cost.h"
#include "profiler/measure/layer_bench.h"

namespace sluice::measure {

// Fills in all that is in bytes, as lines through `micro_batch` and its half; of one sample, through one and two where
// there is room for two.
void measure_bytes(LayerBench& bench, const Workload& workload, std::int64_t micro_batch,
                   std::vector<LayerCost>& costs);

}  // namespace sluice::measure
