// torch_steps: what profile.level = "torch" is in a run: LibTorch's own profiler over some steps, its trace written
// for every process beside the run's other files; and on CPU devices which operators each layer spent these steps in.
// The spans and their breakdown stay those of events. Where it cannot be, one warning says why, and the run goes on
// without. Threads: one. Errors: those of the communicator; a trace that is lost is a warning.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
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

// Of a run whose next step is `first`: those of --trace where it is given, else the five after the first. Empty at
// another level, and, with a warning, where a parameter server's workers make the steps.
[[nodiscard]] StepRange torch_steps(const Setup& setup, StepRange traced, std::int64_t first);

class TorchSteps final : public StepObserver {
 public:
  // steps: the same in all processes; it ends before them where an evaluation follows, or where so many operators have
  // run that they would fill the memory. others: of all processes; null: there are none. folder: rank 0's. Requires:
  // the engine outlives it.
  TorchSteps(const Setup& setup, const comm::Communicator* others, engine::Engine& engine, StepRange steps,
             std::filesystem::path folder);
  ~TorchSteps() override;

  // Around every step, in all processes. The last one of the range writes the files.
  void before_step(std::int64_t number) override;
  void after_step(const SeenStep& step) override { after_step(step.number, step.evaluation_follows); }
  void after_step(std::int64_t number, bool evaluation_follows);
  // What there is of a range that was not reached.
  void finish() override;
  // The operators, into the log and, with a reporter, as an event; nothing where none was seen.
  void report(report::Reporter* reporter) override;

 private:
  struct Running;

  [[nodiscard]] bool leaves_out(std::int64_t number) const;
  void start();
  void take_step();
  void stop();
  void write();

  const comm::Communicator* others_;
  bool with_gpus_;  // some device of this process is one
  StepRange range_;
  std::filesystem::path folder_;
  bool is_done_;
  MarksHolder<Running> running_;  // from the step before the range to the last one
  std::string text_;              // of the trace, until it is written
  profiler::OperatorSums sums_;   // of all steps, by the layers' index in layers_
  std::vector<std::string> layers_;
  bool has_begun_ = false;
  std::int64_t steps_ = 0;
  std::uint64_t calls_ = 0;          // of all steps
  std::uint64_t calls_of_step_ = 0;  // the last one
};

}  // namespace sluice::train
