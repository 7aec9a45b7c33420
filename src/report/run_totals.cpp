#include "report/run_totals.h"

#include <algorithm>
#include <map>

#include "core/flops.h"
namespace sluice::report {

std::optional<double> utilisation(const FlopCount& flops, double device_s, const RunFacts& facts) {
  if (facts.peak_flops <= 0 || device_s <= 0) return std::nullopt;
  return all_flops(flops) / (facts.peak_flops * device_s);
}

void RunTotals::add_step(const StepStats& stats, const profiler::StepBreakdown& breakdown,
                         std::optional<double> network_bytes_per_s, const RunFacts& facts) {
  ++steps;
  samples += stats.samples;
  targets += stats.targets;
  duration += breakdown.step;
  device_s += to_s(breakdown.step) * facts.all_devices();
  add_to(flops, stats.flops);
  dropped_spans += breakdown.dropped;
  if (breakdown.late.rank >= 0) waited_for_rank[breakdown.late.rank] += breakdown.late.wait;
  if (network_bytes_per_s) {
    network_bytes += *network_bytes_per_s * to_s(breakdown.step);
    network_time += breakdown.step;
  }
  report::add_step(slots, breakdown);
}

void RunTotals::add_outside(const std::vector<Span>& spans) {
  for (const Span& span : spans) {
    if (span.phase == Phase::kEvaluation) evaluation += span.end - span.begin, ++evaluations_made;
    if (span.phase == Phase::kCheckpoint) checkpoints += span.end - span.begin, ++checkpoints_made;
  }
}

tune::AdviceInput advice_input(const RunTotals& totals, const RunFacts& facts) {
  const auto mean = [&](Nanoseconds total) {
    return to_s(total) / static_cast<double>(std::max<std::int64_t>(totals.steps, 1));
  };
  tune::AdviceInput input{
      .step = mean(totals.duration),
      .plan = facts.plan,
      .chunks_are_measured = facts.chunks_are_measured,
      .partition_is_measured = facts.partition_is_measured,
      .replica_samples = static_cast<double>(facts.plan.global_batch) / facts.replicas,
      .costs = facts.costs,
      .sync_bytes = static_cast<double>(facts.sync_bytes),
      .network_bytes_per_s = totals.network_time > 0 ? totals.network_bytes / to_s(totals.network_time) : 0.0,
      .data_workers = facts.data_workers};
  for (const auto& [slot, steps, duration] : totals.slots) {
    input.devices.push_back({.replica = index(slot.replica),
                             .device = index(slot.device),
                             .forward = mean(slot.forward()),
                             .backward = mean(slot.backward()),
                             .load = mean(slot.load()),
                             .allreduce = mean(slot[profiler::Part::kAllReduce]),
                             .skew = mean(slot[profiler::Part::kSkew]),
                             .fill = mean(slot[profiler::Part::kFill]),
                             .drain = mean(slot[profiler::Part::kDrain]),
                             .other = mean(slot[profiler::Part::kOther])});
    input.allreduce = std::max(input.allreduce, mean(slot.all_reduce - slot[profiler::Part::kSkew]));
  }
  // A rank may be late in some steps and early in others, so the longest wait for another rank is subtracted.
  for (const auto& [rank, waited] : totals.waited_for_rank) {
    Nanoseconds for_another = 0;
    for (const auto& [other, wait] : totals.waited_for_rank) {
      if (other != rank) for_another = std::max(for_another, wait);
    }
    const double late = mean(std::max<Nanoseconds>(waited - for_another, 0));
    if (!input.late_rank || late > input.late_rank->late) input.late_rank = {rank, late};
  }
  return input;
}

}  // namespace sluice::report
