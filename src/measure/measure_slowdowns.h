// measure_slowdowns: how much the CPU devices of a machine slow each other's layers down: the model's layers run on all
// of them at once, each for itself, in no common rhythm, and those of the first are timed, by the clock that times
// layers alone (layer_timer.h): waiting for a core that other programs have is no slow-down. Not here: what to make of
// it (tune/contention.h). Threads: works in threads of its own; the caller waits. Errors: those of describe_failure(),
// "measuring how devices slow each other down: ...".
#pragma once

#include <cstdint>
#include <vector>

#include "measure/workload.h"
#include "profiler/layer_profile.h"

namespace sluice::measure {

// Passes of the device that is timed: at least so many, and more until they have taken so long.
struct SlowdownPasses {
  int least = 5;
  double seconds = 3;
};

// [layer]: how many times as long forward and backward take beside devices - 1 others as in `alone`, which has this
// size; at least 1. Requires: at least two devices.
[[nodiscard]] std::vector<double> measure_slowdowns(const Workload& workload, int devices, std::int64_t samples,
                                                    const std::vector<profiler::MeasuredLayer>& alone,
                                                    const SlowdownPasses& passes = {});

}  // namespace sluice::measure
