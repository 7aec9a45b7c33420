// breakdown: divides a step's time into disjoint parts per (replica, device). If several things overlap, the first of
// these counts: the stage's own thread; waiting for a neighbour (the bubble); waiting for other stages and replicas;
// the all-reduce over processes, split into waiting for the last process and the exchange; loading. Pure. Nanoseconds.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "core/clock.h"
#include "core/recorder.h"

namespace sluice::profiler {

enum class Part : std::uint8_t {
  kLoad,
  kHostToDevice,
  kForward,
  kLoss,
  kBackward,
  kWeightGradient,
  kStageCopy,  // tensors between stages, and weights between devices
  kAllReduce,  // exposed: summing replicas in this thread, or waiting for all-reduces over processes
  kSkew,       // waiting for the slowest replica or process to reach the all-reduce
  kOptimizer,
  kFill,  // bubble until the stage's first backward
  kSteady,
  kDrain,  // bubble after the stage's last forward
  kOther,  // anything else: launching work, waking threads, bookkeeping
};
inline constexpr int kParts = 14;

struct SlotBreakdown {
  ReplicaId replica;
  DeviceId device;
  std::array<Nanoseconds, kParts> parts{};
  Nanoseconds all_reduce = 0;  // exposed or hidden: this stage's gradients were being summed or were waiting for it

  [[nodiscard]] Nanoseconds operator[](Part part) const { return parts[static_cast<std::size_t>(part)]; }
  [[nodiscard]] Nanoseconds& operator[](Part part) { return parts[static_cast<std::size_t>(part)]; }

  // Columns of reports; they are disjoint and add up to the step.
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

void add(SlotBreakdown& sum, const SlotBreakdown& other);

struct StepBreakdown {
  Nanoseconds step = 0;  // from the request for the batch to the end of the optimizer
  std::vector<SlotBreakdown> slots;
  LateProcess late;
  std::uint64_t dropped = 0;  // spans that were not kept; their time counts as kOther

  [[nodiscard]] SlotBreakdown mean() const;
  [[nodiscard]] DeviceId slowest_device() const;          // busiest, mean over replicas
  [[nodiscard]] std::vector<double> device_busy() const;  // busy / step, one per slot
};

[[nodiscard]] StepBreakdown break_down(const StepSpans& spans);

}  // namespace sluice::profiler
