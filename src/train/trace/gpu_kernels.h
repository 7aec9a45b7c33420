// gpu_kernels: profile.level = "cupti": the steps as GPUs executed them, and a table of kernels. Without CUPTI, one
// warning gives the reason and the run uses events. Threads: one.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "core/recorder.h"
#include "engine/engine.h"
#include "profiler/cupti/autograd_marks.h"
#include "profiler/cupti/step_kernels.h"
#include "report/reporter.h"
#include "train/trace/marks_holder.h"
#include "train/trace/step_observer.h"

namespace sluice::train {

class GpuKernels final : public StepObserver {
 public:
  // Null at another level or without CUPTI. makes_steps: by this process's engine. Requires: the engine outlives it.
  [[nodiscard]] static std::unique_ptr<GpuKernels> start(const std::string& level, bool makes_steps,
                                                         engine::Engine& engine);
  void complete(StepSpans& spans) override { spans = running_->steps.attributed(std::move(spans)); }
  void outside_of_steps(const std::vector<Span>& /*spans*/) override { running_->steps.forget(); }
  void report(report::Reporter* reporter) override;

 private:
  struct Running {
    explicit Running(std::unique_ptr<cupti::Session> session) : steps(std::move(session)), marks(steps.session()) {}
    cupti::StepKernels steps;
    cupti::AutogradMarks marks;
  };
  GpuKernels(std::unique_ptr<cupti::Session> session, Recorder& recorder);

  MarksHolder<Running> running_;
};

}  // namespace sluice::train
