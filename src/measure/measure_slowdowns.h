// measure_slowdowns: measures how much CPU devices of a machine slow down each other's layers: all devices run the
// layers unsynchronized, and the first one is timed (layer_timer.h).
// Threads: works in its own threads; the caller waits. Errors: "measuring how devices slow each other down: ...".
#pragma once

#include <cstdint>
#include <vector>

#include "measure/workload.h"
#include "profiler/layer_profile.h"

namespace sluice::measure {

// At least `least` passes, and more until `seconds` have passed.
struct SlowdownPasses {
  int least = 5;
  double seconds = 3;
};

// [layer]: time of forward and backward beside devices - 1 others, relative to `alone`, which contains this size; at
// least 1. Requires: at least two devices.
[[nodiscard]] std::vector<double> measure_slowdowns(const Workload& workload, int devices, std::int64_t samples,
                                                    const std::vector<profiler::MeasuredLayer>& alone,
                                                    const SlowdownPasses& passes = {});

}  // namespace sluice::measure
