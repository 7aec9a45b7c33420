// breakdown: where a step's time went, per (replica, stage), from the recorder's spans.
// The parts are disjoint and add up to the step: a span inside another (a bucket's sum inside backward) is taken out of
// the outer one, and what no span covers is idle.
#pragma once

#include <array>
#include <vector>

#include "core/clock.h"
#include "core/recorder.h"

namespace sluice::profiler {

inline constexpr int kPhases = 6;
[[nodiscard]] const char* name_of(Phase phase);  // "forward", "allreduce", ...

struct StageBreakdown {
  ReplicaId replica;
  StageId stage;
  std::array<Nanoseconds, kPhases> of_phase{};  // by Phase; kAllReduce: exposed, on the stage's own thread
  Nanoseconds idle = 0;

  [[nodiscard]] Nanoseconds operator[](Phase phase) const { return of_phase[static_cast<std::size_t>(phase)]; }
  [[nodiscard]] Nanoseconds& operator[](Phase phase) { return of_phase[static_cast<std::size_t>(phase)]; }
  [[nodiscard]] Nanoseconds compute() const {
    return (*this)[Phase::kForward] + (*this)[Phase::kBackward] + (*this)[Phase::kOptimizer];
  }
};

struct StepBreakdown {
  Nanoseconds step = 0;                // from the request for the batch to the end of the optimizer
  std::vector<StageBreakdown> stages;  // one per track

  [[nodiscard]] StageBreakdown mean() const;
  [[nodiscard]] StageId slowest_stage() const;            // most compute, mean over replicas
  [[nodiscard]] std::vector<double> device_busy() const;  // compute / step, one per track
};

// What the step waited for outside all spans; it counts for every stage.
struct StepWaits {
  Nanoseconds load = 0;  // for its batch
  Nanoseconds sync = 0;  // for the other processes' gradients
};
[[nodiscard]] StepBreakdown break_down(const Recorder& recorder, Nanoseconds step, const StepWaits& waits);

}  // namespace sluice::profiler
