// sequence_kernels: GPU time of each of several consecutive sequences of calls: the sum of its kernels, copies and
// memsets without gaps. See profiler/gpu_repeat_timing.h for its use. Pure.
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

// Work belongs to the sequence in which the host launched it, or in which it began if the launch is unrecorded. Other
// work (the delay before a sequence) is ignored. An entry is empty if one of its records has no times; all are empty if
// records were dropped. spans: ascending, disjoint.
[[nodiscard]] std::vector<std::optional<Nanoseconds>> sequence_kernels(const Records& records,
                                                                       std::span<const SequenceSpan> spans);

}  // namespace sluice::cupti
