#include "tune/partition.h"

#include <algorithm>
#include <functional>
#include <optional>

#include "core/check.h"
#include "pipeline/schedule/inspect.h"
#include "pipeline/schedule/memory_trace.h"
#include "pipeline/schedule/simulate.h"
#include "tune/device_search.h"
#include "tune/memory.h"
#include "tune/possible_stages.h"

namespace sluice::tune {
namespace {

using pipeline::Schedule;
using pipeline::StageBytes;

// What a stage of the layers [begin, end) costs in a unit to be minimised; kNever where it may not be.
using StageValue = std::function<double(int stage, int begin, int end)>;

// Nothing where no cut is allowed.
std::optional<Partition> least_largest_stage(int layers, int stages, const StageValue& value_of) {
  check(stages >= 1 && stages <= layers, "a cut needs 1 <= stages <= layers");
  // best[s][n]: the first n layers in s stages; cut[s][n]: where its last stage begins.
  std::vector<std::vector<CutValue>> best(stages + 1, std::vector<CutValue>(layers + 1));
  std::vector<std::vector<int>> cut(stages + 1, std::vector<int>(layers + 1, 0));
  best[0][0] = {0.0, 0.0};
  for (int s = 1; s <= stages; ++s) {
    for (int n = s; n <= layers - (stages - s); ++n) {
      for (int begin = s - 1; begin < n; ++begin) {
        if (best[s - 1][begin].largest == kNever) continue;
        const double last = value_of(s - 1, begin, n);
        const CutValue value{std::max(best[s - 1][begin].largest, last), best[s - 1][begin].squares + last * last};
        if (value < best[s][n]) {
          best[s][n] = value;
          cut[s][n] = begin;
        }
      }
    }
  }
  if (best[stages][layers].largest == kNever) return std::nullopt;
  Partition partition{std::vector<int>(stages)};
  for (int s = stages, end = layers; s > 0; --s) {
    partition.layers_per_stage[s - 1] = end - cut[s][end];
    end = cut[s][end];
  }
  return partition;
}

// Whether a stage recomputes: where that is open, only if it does not fit otherwise.
std::optional<bool> fitting_choice(const PossibleStages& stages, const CutRules& rules, int stage, int begin, int end) {
  if (!stages.allows(stage, begin, end)) return std::nullopt;
  for (const bool recomputes : stages.choices()) {
    if (rules.memory_limit == 0) return recomputes;
    if (stages.peak_alone(stage, stages.bytes(stage, begin, end, recomputes)) <= rules.memory_limit) return recomputes;
  }
  return std::nullopt;
}

// Exact with one stage a device; with several it looks at each stage alone.
std::optional<Cut> cut_by_stage(const PossibleStages& stages, const CutRules& rules) {
  const auto choice = [&](int stage, int begin, int end) { return fitting_choice(stages, rules, stage, begin, end); };
  const auto partition = least_largest_stage(stages.layers(), stages.count(), [&](int stage, int begin, int end) {
    const auto recomputes = choice(stage, begin, end);
    return recomputes ? stages.seconds(begin, end, *recomputes) : kNever;
  });
  if (!partition) return std::nullopt;
  Cut cut{.partition = *partition};
  for (int s = 0, begin = 0; s < stages.count(); ++s) {
    const int end = begin + partition->layers_per_stage[s];
    cut.recompute.push_back(*choice(s, begin, end));
    begin = end;
  }
  return cut;
}

bool fits_everywhere(const PossibleStages& stages, const Cut& cut) {
  const auto bytes = stages.bytes(cut.partition, cut.recompute);
  for (int device = 0; device < stages.devices(); ++device)
    if (!stages.fits(device, bytes)) return false;
  return true;
}

double slowest_device(const PossibleStages& stages, const Cut& cut) {
  std::vector<double> seconds(stages.devices(), 0.0);
  for (int s = 0, begin = 0; s < stages.count(); ++s) {
    const int end = begin + cut.partition.layers_per_stage[s];
    seconds[stages.owner(s)] += stages.seconds(begin, end, cut.recompute[s]);
    begin = end;
  }
  return *std::ranges::max_element(seconds);
}

// [stage]; with recomputation a backward takes one more forward. recompute: empty: none does.
std::vector<pipeline::StepCost> stage_costs(std::span<const LayerCost> costs, double micro_batch,
                                            const Partition& partition, const std::vector<bool>& recompute) {
  std::vector<pipeline::StepCost> stages;
  std::size_t layer = 0;
  for (std::size_t s = 0; s < partition.layers_per_stage.size(); ++s) {
    pipeline::StepCost& stage = stages.emplace_back(pipeline::StepCost{.forward = 0, .input = 0, .weight = 0});
    for (int i = 0; i < partition.layers_per_stage[s]; ++i, ++layer) {
      stage.forward += costs[layer].forward.at(micro_batch);
      stage.input += costs[layer].input_gradient.at(micro_batch);
      stage.weight += costs[layer].weight_gradient.at(micro_batch);
    }
    if (!recompute.empty() && recompute[s]) stage.input += stage.forward;
  }
  check(layer == costs.size(), "the partition covers every layer");
  return stages;
}

double makespan(std::span<const LayerCost> costs, const Schedule& schedule, const Cut& cut, double micro_batch) {
  pipeline::Costs times;
  times.stages = stage_costs(costs, micro_batch, cut.partition, cut.recompute);
  return pipeline::simulate(schedule, times).makespan;
}

Cut smallest_cut(const PossibleStages& stages, const CutRules& rules) {
  const auto peak = [&](int stage, int begin, int end, bool recomputes) {
    return stages.peak_alone(stage, stages.bytes(stage, begin, end, recomputes));
  };
  // With one micro-batch in flight recomputation may need more.
  const auto recomputes = [&](int stage, int begin, int end) {
    if (rules.recompute != Recompute::kOpen) return rules.recompute == Recompute::kLayer;
    return peak(stage, begin, end, true) < peak(stage, begin, end, false);
  };
  const auto partition = least_largest_stage(stages.layers(), stages.count(), [&](int stage, int begin, int end) {
    if (!stages.allows(stage, begin, end)) return kNever;
    return static_cast<double>(peak(stage, begin, end, recomputes(stage, begin, end)));
  });
  Cut cut{.partition = *partition, .fits = false};
  for (int s = 0, begin = 0; s < stages.count(); ++s) {
    const int end = begin + partition->layers_per_stage[s];
    cut.recompute.push_back(recomputes(s, begin, end));
    begin = end;
  }
  return cut;
}

}  // namespace

Cut best_cut(std::span<const LayerCost> costs, const Schedule& schedule, const CutRules& rules) {
  const PossibleStages stages(costs, schedule, rules);
  std::optional<Cut> by_stage = cut_by_stage(stages, rules);
  if (stages.devices() == stages.count()) return by_stage ? *by_stage : smallest_cut(stages, rules);
  if (by_stage && !fits_everywhere(stages, *by_stage)) by_stage.reset();
  const DeviceSearchResult by_device =
      least_slowest_device(stages, by_stage ? slowest_device(stages, *by_stage) : kNever);
  const auto finishes = [&](const Cut& cut) { return makespan(costs, schedule, cut, rules.micro_batch); };
  Cut best;
  if (by_device.cut && (!by_stage || finishes(*by_device.cut) < finishes(*by_stage))) {
    best = *by_device.cut;
  } else if (by_stage) {
    best = *by_stage;
  } else {
    best = smallest_cut(stages, rules);
    best.fits = fits_everywhere(stages, best);
  }
  best.is_proven = by_device.is_complete;
  return best;
}

Cut smallest_cut(std::span<const LayerCost> costs, const Schedule& schedule, const CutRules& rules) {
  return smallest_cut(PossibleStages(costs, schedule, rules), rules);
}

Partition balance(std::span<const LayerCost> costs, double micro_batch, int stages) {
  std::vector<double> prefix{0.0};
  for (const LayerCost& cost : costs) prefix.push_back(prefix.back() + cost.seconds(micro_batch));
  return *least_largest_stage(static_cast<int>(costs.size()), stages,
                              [&](int, int begin, int end) { return prefix[end] - prefix[begin]; });
}

std::vector<double> stage_times(std::span<const LayerCost> costs, double micro_batch, const Partition& partition,
                                const std::vector<bool>& recompute) {
  std::vector<double> times;
  for (const pipeline::StepCost& stage : stage_costs(costs, micro_batch, partition, recompute))
    times.push_back(stage.forward + stage.input + stage.weight);
  return times;
}

std::vector<std::uint64_t> device_peaks(std::span<const LayerCost> costs, const Schedule& schedule,
                                        const Partition& partition, const std::vector<bool>& recompute,
                                        std::uint64_t samples, bool shares_memory) {
  const CutRules rules{.most_samples = samples, .shares_memory = shares_memory};
  const PossibleStages stages(costs, schedule, rules);
  const auto bytes = stages.bytes(partition, recompute);
  std::vector<std::uint64_t> peaks;
  for (int device = 0; device < stages.devices(); ++device) peaks.push_back(stages.peak(device, bytes));
  return peaks;
}

std::vector<std::uint64_t> live_peaks(std::span<const LayerCost> costs, const Schedule& schedule,
                                      const Partition& partition, const std::vector<bool>& recompute,
                                      std::uint64_t samples) {
  const std::vector<int> owners = pipeline::stage_owners(schedule);
  const pipeline::MemoryTrace trace(schedule);
  std::vector<std::uint64_t> peaks;
  for (int s = 0, begin = 0; s < schedule.stages; ++s) {
    const int layers = partition.layers_per_stage[s];
    const StageRole role{
        .is_first = s == 0, .is_last = s + 1 == schedule.stages, .recomputes = !recompute.empty() && recompute[s]};
    std::vector<StageBytes> alone(schedule.stages);
    alone[s] = live_bytes(costs.subspan(begin, layers), samples, role);
    peaks.push_back(static_cast<std::uint64_t>(trace.peak_bytes(owners[s], alone)));
    begin += layers;
  }
  return peaks;
}

}  // namespace sluice::tune
