// measure_operators: which operators the layers of the configured model spend their time in: passes forward and back
// through all layers, alone on the first device of this process, a CPU, with whole backward passes. Passes that are
// watched (operators/operator_watch.h) take turns with some that are not, so that each layer's time is known without
// the watching. The loss belongs to the last layer. And the machine's peaks, measured: products of large matrices in
// the run's precision, and adding and copying tensors that are larger than the caches, with the device's threads. Not
// here: layer costs (measure_layers.h). Threads: works in threads of its own; the caller waits. Errors: those of
// describe_failure(), "measuring the operators: ...".
#pragma once

#include <cstdint>

#include "measure/workload.h"
#include "profiler/operator_profile.h"

namespace sluice::measure {

// micro_batch: samples.
[[nodiscard]] profiler::OperatorProfile measure_operators(const Workload& workload, std::int64_t micro_batch);

}  // namespace sluice::measure
