// measure_operators: measures the time of each operator in the model's layers, and the machine's peaks (large matrix
// products; adding and copying tensors larger than the caches), on the first device of this process, a CPU. Observed
// passes (operators/operator_watch.h) alternate with others, so that layer times exclude the observer.
// Threads: works in its own threads; the caller waits. Errors: "measuring the operators: ...".
#pragma once

#include <cstdint>

#include "measure/workload.h"
#include "profiler/operator_profile.h"

namespace sluice::measure {

[[nodiscard]] profiler::OperatorProfile measure_operators(const Workload& workload, std::int64_t micro_batch);

}  // namespace sluice::measure
