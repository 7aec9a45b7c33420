// gpu_kernels: what profile.level = "cupti" is in a run: the steps as the GPUs ran them, and a table of their kernels.
// Where it cannot be, one warning says why, and the run goes on with events. Only in the process that keeps the
// records. Threads: one. Errors: none.
#pragma once

#include <memory>
#include <string>

#include "core/recorder.h"
#include "engine/engine.h"
#include "profiler/cupti/autograd_marks.h"
#include "profiler/cupti/step_kernels.h"
#include "report/reporter.h"

namespace sluice::train {

class GpuKernels {
 public:
  // Null at another level, and where it is unavailable. makes_steps: this process's own engine does. Requires: the
  // engine outlives it.
  [[nodiscard]] static std::unique_ptr<GpuKernels> start(const std::string& level, bool makes_steps,
                                                         engine::Engine& engine);
  ~GpuKernels() { recorder_.tell(nullptr); }
  GpuKernels(const GpuKernels&) = delete;
  GpuKernels& operator=(const GpuKernels&) = delete;

  [[nodiscard]] StepSpans attributed(StepSpans host) { return steps_.attributed(std::move(host)); }
  void forget() { steps_.forget(); }  // what ran outside of steps
  // The event `kernels`; nothing before the second step.
  void report(report::Reporter& reporter) const;

 private:
  GpuKernels(std::unique_ptr<cupti::Session> session, Recorder& recorder)
      : steps_(std::move(session)), marks_(steps_.session()), recorder_(recorder) {
    recorder_.tell(&marks_);
  }

  cupti::StepKernels steps_;
  cupti::AutogradMarks marks_;
  Recorder& recorder_;
};

}  // namespace sluice::train
