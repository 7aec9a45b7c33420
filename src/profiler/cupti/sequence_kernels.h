// sequence_kernels: GPU time of consecutive sequences of calls, without gaps (profiler/gpu_repeat_timing.h). Pure.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "core/clock.h"
#include "profiler/cupti/records.h"

namespace sluice::cupti {

struct SequenceSpan {
  Nanoseconds begin = 0;
  Nanoseconds end = 0;
  Nanoseconds idle = 0;  // the device has finished all of it
};

// Work belongs to the sequence in which the host launched it, or in which it began if the launch is unrecorded. An
// entry is empty if one of its records has no times; all are if records were dropped. spans: ascending, disjoint.
[[nodiscard]] std::vector<std::optional<Nanoseconds>> sequence_kernels(const Records& records,
                                                                       std::span<const SequenceSpan> spans);

}  // namespace sluice::cupti
