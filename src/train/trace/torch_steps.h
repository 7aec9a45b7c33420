// torch_steps: profile.level = "torch": LibTorch's profiler over some steps: a trace file for every process and, on CPU
// devices, operators by layer. Threads: one. Errors: the communicator's; a lost trace gives a warning.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "comm/communicator.h"
#include "engine/engine.h"
#include "profiler/operator_sums.h"
#include "profiler/operators/operator_watch.h"
#include "profiler/torch_trace/torch_profiler.h"
#include "profiler/torch_trace/trace_marks.h"
#include "report/reporter.h"
#include "train/setup/setup.h"
#include "train/trace/marks_holder.h"
#include "train/trace/step_observer.h"
#include "train/trace/traced_steps.h"

namespace sluice::train {

// The steps of --trace, else the five after step `first`. Empty at another level or if a parameter server's workers
// make the steps (with a warning).
[[nodiscard]] StepRange torch_steps(const Setup& setup, StepRange traced, std::int64_t first);

class TorchSteps final : public StepObserver {
 public:
  // steps: the same in all processes. Tracing ends early before an evaluation, or if it would fill the memory. others:
  // null if there are none. Requires: the engine outlives it.
  TorchSteps(const Setup& setup, const comm::Communicator* others, engine::Engine& engine, StepRange steps,
             std::filesystem::path folder);
  ~TorchSteps() override;

  // Call both around every step, in all processes. The last step of the range writes the files.
  void before_step(std::int64_t number) override;
  void after_step(const SeenStep& step) override { after_step(step.number, step.evaluation_follows); }
  void after_step(std::int64_t number, bool evaluation_follows);
  void finish() override;
  void report(report::Reporter* reporter) override;

 private:
  struct Running;

  [[nodiscard]] bool leaves_out(std::int64_t number) const;
  void start();
  void take_step();
  void stop();
  void write();

  const comm::Communicator* others_;
  bool with_gpus_;
  StepRange range_;
  std::filesystem::path folder_;
  bool is_done_;
  MarksHolder<Running> running_;  // set from the step before the range to its last step
  std::string text_;
  profiler::OperatorSums sums_;  // of all steps, by index in layers_
  std::vector<std::string> layers_;
  bool has_begun_ = false;
  std::int64_t steps_ = 0;
  std::uint64_t calls_ = 0;
  std::uint64_t calls_of_step_ = 0;
};

}  // namespace sluice::train
