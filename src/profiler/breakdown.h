// breakdown: where a step's time went, per (replica, device), by interval union over the recorder's spans.
// Every nanosecond of the step is given to exactly one part, so the parts add up to the step by construction. Where
// several things go on at once the first of these counts: what the stage's own thread does; waiting for a neighbour
// (the bubble); waiting for the other stages and replicas of this process; the all-reduce over the processes, split
// into waiting for the last of them and their exchange; the load. So an all-reduce is exposed while it alone keeps the
// stage from going on, and hidden while the stage computes or would have waited for its neighbours anyway. Not here:
// recording (core/recorder.h), advice (tune/advice.h). Pure. Times in nanoseconds.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "core/clock.h"
#include "core/recorder.h"

namespace sluice::profiler {

enum class Part : std::uint8_t {
  kLoad,  // waiting for the loader
  kHostToDevice,
  kForward,
  kLoss,
  kBackward,
  kWeightGradient,
  kStageCopy,  // tensors between stages, and weights between devices
  kAllReduce,  // exposed: adding replicas up in this thread, or waiting for sums over the processes
  kSkew,       // waiting for the slowest replica or process to get to the all-reduce
  kOptimizer,
  kFill,    // bubble until the stage's first backward
  kSteady,  // bubble in between
  kDrain,   // bubble after the stage's last forward
  kOther,   // none of these: launching work, waking threads, bookkeeping
};
inline constexpr int kParts = 14;

struct SlotBreakdown {
  ReplicaId replica;
  DeviceId device;
  std::array<Nanoseconds, kParts> parts{};
  Nanoseconds all_reduce = 0;  // exposed, or hidden: gradients of this stage were being added up, or waited to be

  [[nodiscard]] Nanoseconds operator[](Part part) const { return parts[static_cast<std::size_t>(part)]; }
  [[nodiscard]] Nanoseconds& operator[](Part part) { return parts[static_cast<std::size_t>(part)]; }

  // The columns of reports: disjoint, and together the step.
  [[nodiscard]] Nanoseconds load() const { return (*this)[Part::kLoad]; }
  [[nodiscard]] Nanoseconds forward() const { return (*this)[Part::kForward] + (*this)[Part::kLoss]; }
  [[nodiscard]] Nanoseconds backward() const { return (*this)[Part::kBackward] + (*this)[Part::kWeightGradient]; }
  [[nodiscard]] Nanoseconds transfer() const { return (*this)[Part::kHostToDevice] + (*this)[Part::kStageCopy]; }
  [[nodiscard]] Nanoseconds all_reduce_exposed() const { return (*this)[Part::kAllReduce] + (*this)[Part::kSkew]; }
  [[nodiscard]] Nanoseconds optimizer() const { return (*this)[Part::kOptimizer]; }
  [[nodiscard]] Nanoseconds idle() const { return bubble() + (*this)[Part::kOther]; }

  [[nodiscard]] Nanoseconds bubble() const {
    return (*this)[Part::kFill] + (*this)[Part::kSteady] + (*this)[Part::kDrain];
  }
  [[nodiscard]] Nanoseconds all_reduce_hidden() const { return all_reduce - all_reduce_exposed(); }
  [[nodiscard]] Nanoseconds busy() const { return forward() + backward() + optimizer(); }
};

// Part by part; replica and device are those of `sum`.
void add(SlotBreakdown& sum, const SlotBreakdown& other);

struct StepBreakdown {
  Nanoseconds step = 0;              // from the request for the batch to the end of the optimizer
  std::vector<SlotBreakdown> slots;  // empty when nothing was recorded
  LateProcess late;
  std::uint64_t dropped = 0;  // spans that were not kept: what they covered counts as other

  [[nodiscard]] SlotBreakdown mean() const;
  [[nodiscard]] DeviceId slowest_device() const;          // busiest, mean over replicas
  [[nodiscard]] std::vector<double> device_busy() const;  // busy / step, one per slot
};

[[nodiscard]] StepBreakdown break_down(const StepSpans& spans);

}  // namespace sluice::profiler
