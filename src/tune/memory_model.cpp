#include "tune/memory_model.h"

#include <algorithm>
#include <span>

#include "core/divided_up.h"
#include "core/error.h"
#include "pipeline/schedule/plan_schedule.h"
#include "tune/partition.h"

namespace sluice::tune {
namespace {

std::optional<pipeline::Schedule> schedule_of(const Plan& plan) {
  try {
    return pipeline::make_train_schedule(plan, plan.chunks);
  } catch (const ConfigError&) {
    return std::nullopt;
  }
}

std::span<const LayerCost> trained_layers(const MemoryModel& model, const Plan& plan) {
  return std::span(model.layers).subspan(plan.frozen_layers);
}

std::uint64_t micro_batch_samples(const MemoryModel& model, const Plan& plan) {
  return static_cast<std::uint64_t>(largest_micro_batch(plan, model.processes));
}

}  // namespace

std::int64_t largest_micro_batch(std::int64_t global_batch, std::int64_t replicas, int chunks) {
  return divided_up(divided_up(global_batch, replicas), chunks);
}

std::int64_t largest_micro_batch(const Plan& plan, int processes) {
  return largest_micro_batch(plan.global_batch, std::int64_t{plan.replicas} * processes, plan.chunks);
}

std::uint64_t frozen_bytes(const MemoryModel& model, const Plan& plan, std::size_t device) {
  if (plan.frozen_layers == 0) return 0;
  const bool has_parameters = device == 0 || !model.shares_memory;
  const auto share = static_cast<std::uint64_t>(divided_up(replica_samples(model, plan), plan.devices()));
  std::uint64_t bytes = share * model.layers[plan.frozen_layers - 1].output_bytes;
  for (int i = 0; i < plan.frozen_layers; ++i)
    bytes += (has_parameters ? model.layers[i].parameter_bytes : 0) + model.layers[i].buffer_bytes +
             model.layers[i].transformed_bytes;
  return bytes;
}

std::int64_t replica_samples(const MemoryModel& model, const Plan& plan) {
  return divided_up(plan.global_batch, std::int64_t{plan.replicas} * model.processes);
}

std::optional<std::vector<std::uint64_t>> estimate_device_bytes(const MemoryModel& model, const Plan& plan) {
  const std::uint64_t samples = micro_batch_samples(model, plan);
  const auto schedule = schedule_of(plan);
  if (!schedule) return std::nullopt;
  auto peaks = device_peaks(trained_layers(model, plan), *schedule, plan.partition, plan.recompute, samples,
                            model.shares_memory);
  for (std::size_t device = 0; device < peaks.size(); ++device) peaks[device] += frozen_bytes(model, plan, device);
  return peaks;
}

std::optional<std::vector<std::uint64_t>> estimate_slot_bytes(const MemoryModel& model, const Plan& plan) {
  const auto of_devices = estimate_device_bytes(model, plan);
  if (!of_devices) return std::nullopt;
  std::vector<std::uint64_t> further = *of_devices;
  if (model.shares_memory) {
    const std::vector<int> owners = pipeline::stage_owners(plan);
    std::size_t layer = 0;
    for (; layer < static_cast<std::size_t>(plan.frozen_layers); ++layer)
      further[0] -= model.layers[layer].parameter_bytes;
    for (int stage = 0; stage < plan.stages(); ++stage)
      for (int i = 0; i < plan.partition.layers_per_stage[stage]; ++i, ++layer)
        further[owners[stage]] -= model.layers[layer].parameter_bytes + model.layers[layer].optimizer_bytes;
  }
  std::vector<std::uint64_t> slots = *of_devices;
  for (int replica = 1; replica < plan.replicas; ++replica) slots.insert(slots.end(), further.begin(), further.end());
  for (std::uint64_t& bytes : slots) bytes += model.shares_memory ? 0 : kCublasBytesOfSlot;
  return slots;
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
  return smallest_cut(trained_layers(model, plan), *schedule,
                      {.most_samples = micro_batch_samples(model, plan),
                       .recompute = recompute,
                       .shares_memory = model.shares_memory})
      .partition;
}

}  // namespace sluice::tune
