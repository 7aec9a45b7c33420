// measure_operators: measures the time of each operator in the model's layers, and the machine's peaks, on the first
// device of this process, a CPU. Observed passes (operators/operator_watch.h) alternate with unobserved ones, so that
// layer times exclude the observer. The loss belongs to the last layer. The peaks: large matrix products in the run's
// precision, and adding and copying tensors larger than the caches.
// Threads: works in its own threads; the caller waits. Errors: those of describe_failure(), "measuring the operators:
// ...".
#pragma once

#include <cstdint>

#include "measure/workload.h"
#include "profiler/operator_profile.h"

namespace sluice::measure {

[[nodiscard]] profiler::OperatorProfile measure_operators(const Workload& workload, std::int64_t micro_batch);

}  // namespace sluice::measure
