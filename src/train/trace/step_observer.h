// step_observer: interface of observers of a run's steps: traces, LibTorch's profiler, GPU kernels, times of each rank.
// Every process makes the same calls in the same order. Threads: one.
#pragma once

#include <cstdint>
#include <vector>

#include "core/plan.h"
#include "core/recorder.h"
#include "core/step_stats.h"
#include "profiler/breakdown.h"
#include "report/reporter.h"

namespace sluice::train {

struct SeenStep {
  std::int64_t number = 0;  // from 1
  const StepSpans& spans;
  const StepStats& stats;
  const profiler::StepBreakdown& breakdown;
  const Plan& plan;
  bool evaluation_follows = false;
};

class StepObserver {
 public:
  StepObserver() = default;
  virtual ~StepObserver() = default;
  StepObserver(const StepObserver&) = delete;
  StepObserver& operator=(const StepObserver&) = delete;

  virtual void before_step(std::int64_t /*number*/) {}
  // Events for rank 0. If true in one process, StepStats::has_events is true in all after the next step; after_step()
  // then sends the events.
  [[nodiscard]] virtual bool has_events() const { return false; }
  // May change the spans of a step before any other use.
  virtual void complete(StepSpans& /*spans*/) {}
  // May wait for other processes.
  virtual void after_step(const SeenStep& /*step*/) {}
  virtual void outside_of_steps(const std::vector<Span>& /*spans*/) {}
  virtual void finish() {}
  virtual void report(report::Reporter* /*reporter*/) {}
};

}  // namespace sluice::train
