// step_observer: what watches the steps of a run beside its records: traces, LibTorch's profiler, the kernels of GPUs,
// the times of each rank. Every process of a run makes the same calls in the same order. Threads: one.
#pragma once

#include <cstdint>
#include <vector>

#include "core/plan.h"
#include "core/recorder.h"
#include "core/step_stats.h"
#include "profiler/breakdown.h"
#include "report/reporter.h"

namespace sluice::train {

// A step that is done and recorded.
struct SeenStep {
  std::int64_t number = 0;  // from 1
  const StepSpans& spans;
  const StepStats& stats;
  const profiler::StepBreakdown& breakdown;  // of these spans
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
  // The spans of a step, before anything is made of them.
  virtual void complete(StepSpans& /*spans*/) {}
  // Other processes may be waited for.
  virtual void after_step(const SeenStep& /*step*/) {}
  // What the process did since the last step.
  virtual void outside_of_steps(const std::vector<Span>& /*spans*/) {}
  // At the end of the run. Other processes may be waited for.
  virtual void finish() {}
  // After finish(), in the process that keeps the records.
  virtual void report(report::Reporter* /*reporter*/) {}
};

}  // namespace sluice::train
