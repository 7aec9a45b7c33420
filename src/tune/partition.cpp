#include "tune/partition.h"

#include <algorithm>
#include <functional>
#include <optional>

#include "core/check.h"
#include "pipeline/schedule/inspect.h"
#include "pipeline/schedule/memory_trace.h"
#include "pipeline/schedule/plan_schedule.h"
#include "tune/device_search.h"
#include "tune/memory.h"
#include "tune/possible_stages.h"
#include "tune/predict.h"

namespace sluice::tune {
namespace {

using pipeline::Schedule;
using pipeline::StageBytes;

using StageValue = std::function<double(int stage, int begin, int end)>;

std::optional<Partition> least_largest_stage(const PossibleStages& possible, const StageValue& value_of) {
  const int layers = possible.layers(), stages = possible.count();
  check(stages >= 1 && stages <= layers, "1 <= stages <= layers");
  // best[s][n]: the first n layers in s stages; cut[s][n]: the begin of the last stage.
  std::vector<std::vector<CutValue>> best(stages + 1, std::vector<CutValue>(layers + 1));
  std::vector<std::vector<int>> cut(stages + 1, std::vector<int>(layers + 1, 0));
  best[0][0] = {0.0, 0.0, 0.0};
  for (int s = 1; s <= stages; ++s) {
    for (int n = s; n <= layers - (stages - s); ++n) {
      for (int begin = s - 1; begin < n; ++begin) {
        const CutValue& before = best[s - 1][begin];
        if (before.largest == kNever) continue;
        const double last = value_of(s - 1, begin, n);
        const CutValue value{std::max(before.largest, last), before.squares + last * last,
                             before.borders + possible.border(s - 1, n)};
        if (value.is_better_than(best[s][n])) {
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

// Whether the stage recomputes; if that is open, only if it does not fit otherwise. Empty if it never fits.
std::optional<bool> fitting_choice(const PossibleStages& stages, const CutRules& rules, int stage, int begin, int end) {
  if (!stages.allows(stage, begin, end)) return std::nullopt;
  for (const bool recomputes : stages.choices(stage)) {
    if (rules.memory_limit == 0) return recomputes;
    if (stages.peak_alone(stage, stages.bytes(stage, begin, end, recomputes)) <= rules.memory_limit) return recomputes;
  }
  return std::nullopt;
}

// The best cut by cost_of() whose stages fit and take at most `longest`.
std::optional<Cut> cut_by_stage(const PossibleStages& stages, const CutRules& rules, double longest,
                                const std::function<double(double seconds)>& cost_of) {
  const auto choice = [&](int stage, int begin, int end) { return fitting_choice(stages, rules, stage, begin, end); };
  const auto partition = least_largest_stage(stages, [&](int stage, int begin, int end) {
    const auto recomputes = choice(stage, begin, end);
    if (!recomputes) return kNever;
    const double seconds = stages.seconds(begin, end, *recomputes);
    return is_less(longest, seconds) ? kNever : cost_of(seconds);
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

// Exact with one stage per device. With several, it considers each stage alone.
std::optional<Cut> least_slowest_stage(const PossibleStages& stages, const CutRules& rules) {
  return cut_by_stage(stages, rules, kNever, [](double seconds) { return seconds; });
}

// The cut with the cheapest borders among those whose stages are nearly as fast as this cut's slowest stage.
std::optional<Cut> cheapest_borders(const PossibleStages& stages, const CutRules& rules, const Cut& least_slowest) {
  double slowest = 0;
  for (int s = 0, begin = 0; s < stages.count(); ++s) {
    const int end = begin + least_slowest.partition.layers_per_stage[s];
    slowest = std::max(slowest, stages.seconds(begin, end, least_slowest.recompute[s]));
    begin = end;
  }
  return cut_by_stage(stages, rules, (1 + kNearlyEqual) * slowest, [](double) { return 0.0; });
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

Cut smallest_cut(const PossibleStages& stages, const CutRules& rules) {
  const auto peak = [&](int stage, int begin, int end, bool recomputes) {
    return stages.peak_alone(stage, stages.bytes(stage, begin, end, recomputes));
  };
  // With one micro-batch in flight recomputation may need more memory.
  const auto recomputes = [&](int stage, int begin, int end) {
    if (!rules.recompute_of_stage.empty()) return bool{rules.recompute_of_stage[stage]};
    if (rules.recompute != Recompute::kOpen) return rules.recompute == Recompute::kLayer;
    return peak(stage, begin, end, true) < peak(stage, begin, end, false);
  };
  const auto partition = least_largest_stage(stages, [&](int stage, int begin, int end) {
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

Cut soonest(const std::vector<Cut>& cuts, std::span<const LayerCost> costs, const Schedule& schedule,
            const CutRules& rules) {
  if (cuts.size() == 1) return cuts.front();
  const Cut* best = &cuts.front();
  double least = kNever;
  for (const Cut& cut : cuts) {
    const StepCosts stages = step_costs(costs, cut.partition, cut.recompute, rules.micro_batch, rules.overheads);
    const double seconds = predict_step(schedule, stages).seconds;
    if (is_less(seconds, least)) least = seconds, best = &cut;
  }
  return *best;
}

}  // namespace

Cut best_cut(std::span<const LayerCost> costs, const Schedule& schedule, const CutRules& rules) {
  const PossibleStages stages(costs, schedule, rules);
  const bool is_flat = stages.devices() == stages.count();
  std::vector<Cut> fitting;
  const auto add = [&](const std::optional<Cut>& cut) {
    if (cut && (is_flat || fits_everywhere(stages, *cut))) fitting.push_back(*cut);
  };
  const std::optional<Cut> by_stage = least_slowest_stage(stages, rules);
  add(by_stage);
  bool is_proven = true;
  if (!is_flat) {
    const DeviceSearchResult by_device =
        least_slowest_device(stages, fitting.empty() ? kNever : slowest_device(stages, fitting.front()));
    add(by_device.cut);
    is_proven = by_device.is_complete;
  }
  if (by_stage && stages.borders_take_time()) add(cheapest_borders(stages, rules, *by_stage));
  Cut best = fitting.empty() ? smallest_cut(stages, rules) : soonest(fitting, costs, schedule, rules);
  if (fitting.empty() && !is_flat) best.fits = fits_everywhere(stages, best);
  best.is_proven = is_proven;
  return best;
}

Cut smallest_cut(std::span<const LayerCost> costs, const Schedule& schedule, const CutRules& rules) {
  return smallest_cut(PossibleStages(costs, schedule, rules), rules);
}

std::vector<double> stage_times(std::span<const LayerCost> costs, double micro_batch, const Partition& partition,
                                const std::vector<bool>& recompute) {
  std::vector<double> times;
  for (const pipeline::StepCost& stage : step_costs(costs, partition, recompute, micro_batch).stages)
    times.push_back(stage.forward + stage.whole_backward());
  return times;
}

std::vector<double> device_times(std::span<const LayerCost> costs, double micro_batch, const Plan& plan) {
  const std::vector<double> of_stages = stage_times(costs, micro_batch, plan.partition, plan.recompute);
  const std::vector<int> owners = pipeline::stage_owners(plan);
  std::vector<double> times(plan.devices(), 0.0);
  for (std::size_t s = 0; s < of_stages.size(); ++s) times[owners[s]] += of_stages[s];
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
