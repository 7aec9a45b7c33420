#include "train/trace/observers.h"

#include <utility>

namespace sluice::train {

std::vector<StepObserver*> Observers::all() {
  std::vector<StepObserver*> all{&trace, &torch, &times};
  if (kernels) all.insert(all.begin(), kernels.get());
  return all;
}

Observers make_observers(const ObservedRun& run, TraceOptions trace, StepRange torch,
                         const std::filesystem::path& run_dir) {
  return {.trace = {run.setup, run.others, std::move(trace)},
          .torch = {run.setup, run.others, run.engine, torch, run_dir},
          .kernels = GpuKernels::start(run.setup.config.profile.level, run.makes_steps, run.engine),
          .times = {}};
}

}  // namespace sluice::train
