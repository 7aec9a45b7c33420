#include "tune/memory_model.h"

#include <algorithm>

#include "core/divided_up.h"
#include "core/error.h"
#include "pipeline/schedule/plan_schedule.h"
#include "tune/partition.h"

namespace sluice::tune {
namespace {

// Nothing for a plan that does not run.
std::optional<pipeline::Schedule> schedule_of(const Plan& plan) {
  try {
    return pipeline::make_train_schedule(plan, plan.chunks);
  } catch (const ConfigError&) {
    return std::nullopt;
  }
}

std::uint64_t micro_batch_samples(const MemoryModel& model, const Plan& plan) {
  return static_cast<std::uint64_t>(divided_up(replica_samples(model, plan), plan.chunks));
}

}  // namespace

std::int64_t replica_samples(const MemoryModel& model, const Plan& plan) {
  return divided_up(plan.global_batch, std::int64_t{plan.replicas} * model.processes);
}

std::optional<std::vector<std::uint64_t>> estimate_device_bytes(const MemoryModel& model, const Plan& plan) {
  const std::uint64_t samples = micro_batch_samples(model, plan);
  const auto schedule = schedule_of(plan);
  if (!schedule) return std::nullopt;
  return device_peaks(model.layers, *schedule, plan.partition, plan.recompute, samples, model.shares_memory);
}

std::optional<std::uint64_t> estimate_bytes(const MemoryModel& model, const Plan& plan) {
  const auto of_devices = estimate_device_bytes(model, plan);
  return of_devices ? std::optional(std::ranges::max(*of_devices)) : std::nullopt;
}

std::vector<ChunkCandidate> estimate_chunks(const MemoryModel& model, Plan plan, int least, int most,
                                            std::uint64_t limit) {
  std::vector<ChunkCandidate> candidates;
  for (plan.chunks = least; plan.chunks <= most; plan.chunks *= 2) {
    const auto bytes = limit == 0 ? std::nullopt : estimate_bytes(model, plan);
    candidates.push_back({plan.chunks, !bytes || *bytes <= limit, static_cast<double>(bytes.value_or(0))});
  }
  return candidates;
}

Partition smallest_partition(const MemoryModel& model, const Plan& plan) {
  const auto schedule = schedule_of(plan);
  if (!schedule) return plan.partition;
  const auto recompute = plan.recompute_any() ? Recompute::kLayer : Recompute::kNone;
  return smallest_cut(model.layers, *schedule,
                      {.most_samples = micro_batch_samples(model, plan),
                       .recompute = recompute,
                       .shares_memory = model.shares_memory})
      .partition;
}

}  // namespace sluice::tune
