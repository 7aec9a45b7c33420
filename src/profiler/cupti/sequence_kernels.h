// sequence_kernels: how long the GPU worked on each of several sequences of calls that were enqueued one after another,
// by its records: the sum of its kernels, copies and settings of memory, without the gaps between them.
// Not here: reading CUPTI (session.h), what is made of the times (profiler/gpu_repeat_timing.h). Pure.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "core/clock.h"
#include "profiler/cupti/records.h"

namespace sluice::cupti {

// On the host's clock.
struct SequenceSpan {
  Nanoseconds begin = 0;  // before the first call was enqueued
  Nanoseconds end = 0;    // after the last one
  Nanoseconds idle = 0;   // the device had done it all
};

// Work belongs to the sequence in which the host launched it; where that is not recorded, to the one in which it began.
// Work of none (the delay before a sequence) is passed over. Nothing for a sequence of which a record has no times; for
// none of them where records were dropped. spans: ascending, one after another.
[[nodiscard]] std::vector<std::optional<Nanoseconds>> sequence_kernels(const Records& records,
                                                                       std::span<const SequenceSpan> spans);

}  // namespace sluice::cupti
