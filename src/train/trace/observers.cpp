#include "train/trace/observers.h"

#include <string>
#include <utility>

#include "core/host.h"

namespace sluice::train {

nlohmann::ordered_json RankTimes::of_all(const comm::Communicator& all) const {
  const nlohmann::ordered_json own{
      {"rank", all.rank()}, {"host", host_name()}, {"places", report::mean_breakdown(totals_)}};
  nlohmann::ordered_json ranks = nlohmann::ordered_json::array();
  for (const std::string& text : comm::gather_texts(all, own.dump(), /*root=*/0))
    ranks.push_back(nlohmann::ordered_json::parse(text));
  return {{"ranks", std::move(ranks)}};
}

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
