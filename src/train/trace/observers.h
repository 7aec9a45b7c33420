// observers: what watches the steps of a training run. Threads: one.
#pragma once

#include <filesystem>
#include <memory>
#include <vector>

#include "comm/communicator.h"
#include "engine/engine.h"
#include "report/slot_totals.h"
#include "train/setup/setup.h"
#include "train/trace/gpu_kernels.h"
#include "train/trace/step_observer.h"
#include "train/trace/step_trace.h"
#include "train/trace/torch_steps.h"

namespace sluice::train {

class RankTimes final : public StepObserver {
 public:
  void after_step(const SeenStep& step) override { report::add_step(totals_, step.breakdown); }

  // Returns the fields of `ranks` (docs/reference/files.md) in rank 0. All processes call it together.
  [[nodiscard]] nlohmann::ordered_json of_all(const comm::Communicator& all) const;

 private:
  report::SlotTotals totals_;
};

struct Observers {
  StepTrace trace;
  TorchSteps torch;
  std::unique_ptr<GpuKernels> kernels;  // null: spans come from clocks and events
  RankTimes times;

  // In the order in which they see a step: the first may replace its spans.
  [[nodiscard]] std::vector<StepObserver*> all();
};

struct ObservedRun {
  const Setup& setup;
  const comm::Communicator* others = nullptr;  // null: there are no other processes
  engine::Engine& engine;
  bool makes_steps = true;  // this process's engine does
};

[[nodiscard]] Observers make_observers(const ObservedRun& run, TraceOptions trace, StepRange torch,
                                       const std::filesystem::path& run_dir);

}  // namespace sluice::train
