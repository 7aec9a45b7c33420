// measure_slowdowns: how much the CPU devices of a machine slow each other's layers down: the model's layers run on all
// of them at once, each for itself, in no common rhythm, and those of the first are timed. Not here: what to make of it
// (tune/contention.h). Threads: works in threads of its own; the caller waits. Errors: those of describe_failure(),
// "measuring how devices slow each other down: ...".
#pragma once

#include <cstdint>
#include <vector>

#include "profiler/layer_profile.h"
#include "profiler/measure/workload.h"

namespace sluice::measure {

// [layer]: how many times as long forward and backward take beside devices - 1 others as in `alone`, which has this
// size; at least 1. Requires: at least two devices.
[[nodiscard]] std::vector<double> measure_slowdowns(const Workload& workload, int devices, std::int64_t samples,
                                                    const std::vector<profiler::MeasuredLayer>& alone);

}  // namespace sluice::measure
