#include "tune/contention.h"

#include <algorithm>
#include <cstddef>
#include <span>
#include <utility>

#include "core/ids.h"

namespace sluice::tune {
namespace {

using pipeline::TimeSpan;

// Slower actions change the overlaps, which change the slowdowns again. Each round reduces the error by about the share
// of the slowdown in the times.
constexpr int kRounds = 3;

// sums: [position in `own`], the time that `others` work during it. Both spans are ascending.
void add_overlaps(const std::vector<TimeSpan>& own, const std::vector<TimeSpan>& others, std::vector<double>& sums) {
  std::size_t first = 0;
  for (std::size_t i = 0; i < own.size(); ++i) {
    while (first < others.size() && others[first].end <= own[i].start) ++first;
    for (std::size_t j = first; j < others.size() && others[j].start < own[i].end; ++j)
      sums[i] += std::max(0.0, std::min(own[i].end, others[j].end) - std::max(own[i].start, others[j].start));
  }
}

// Used if more devices work than the cores can run: follows the number working at each moment, not the mean.
pipeline::Simulation share_cores(const pipeline::Simulator& simulator, const pipeline::Costs& costs,
                                 const Contention& contention) {
  return simulator.run(costs, [&](std::span<const int> working, std::span<double> stretches) {
    const auto active = std::ranges::count_if(working, [](int stage) { return stage >= 0; });
    const double devices = static_cast<double>(active) * contention.replicas;
    const double waiting = contention.waiting(devices), share = contention.share_of_slowdown(devices);
    for (std::size_t d = 0; d < working.size(); ++d) {
      if (working[d] < 0) continue;
      const double slowdown = contention.slowdowns.empty() ? 1 : contention.slowdowns[working[d]];
      stretches[d] = waiting * (1 + (slowdown - 1) * share);
    }
  });
}

}  // namespace

double Contention::waiting(double working) const { return std::max(1.0, working / runnable); }

double Contention::most_beside() const { return std::max(0.0, std::min<double>(contenders, runnable) - 1); }

double Contention::share_of_slowdown(double working) const {
  const double beside = std::max(0.0, std::min(working, runnable) - 1);
  return most_beside() > 0 ? beside / most_beside() : 0;
}

pipeline::Simulation simulate_contention(const pipeline::Schedule& schedule, pipeline::Costs costs,
                                         const Contention& contention) {
  return simulate_contention(pipeline::Simulator(schedule), std::move(costs), contention);
}

pipeline::Simulation simulate_contention(const pipeline::Simulator& simulator, pipeline::Costs costs,
                                         const Contention& contention) {
  const pipeline::Schedule& schedule = simulator.schedule();
  const std::size_t devices = schedule.devices.size();
  if (static_cast<double>(devices) * contention.replicas > contention.runnable)
    return share_cores(simulator, costs, contention);
  pipeline::Simulation simulation = simulator.run(costs);
  const bool slows = std::ranges::any_of(contention.slowdowns, [](double slowdown) { return slowdown > 1; });
  if (!slows || contention.most_beside() <= 0 || devices * static_cast<std::size_t>(contention.replicas) < 2)
    return simulation;
  for (int round = 0; round < kRounds; ++round) {
    costs.stretch.assign(devices, {});
    for (std::size_t d = 0; d < devices; ++d) {
      std::vector<double> beside(simulation.spans[d].size(), 0.0);
      for (std::size_t other = 0; other < devices; ++other)
        if (other != d) add_overlaps(simulation.spans[d], simulation.spans[other], beside);
      for (std::size_t i = 0; i < beside.size(); ++i) {
        const double seconds = simulation.spans[d][i].end - simulation.spans[d][i].start;
        const double share = seconds > 0 ? beside[i] / seconds : 0;
        const double others = contention.replicas * share + contention.replicas - 1;
        const double slowdown = contention.slowdowns[static_cast<std::size_t>(index(schedule.devices[d][i].stage))];
        costs.stretch[d].push_back(1 + (slowdown - 1) * others / contention.most_beside());
      }
    }
    simulation = simulator.run(costs);
  }
  return simulation;
}

}  // namespace sluice::tune
