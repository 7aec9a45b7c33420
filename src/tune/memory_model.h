// memory_model: the memory that a whole plan needs on its devices, estimated from measured layers (core/layer_cost.h)
// at the worst moment of its schedule. Memory that is no tensor's is not in it. Not here: a stage's bytes (memory.h),
// what to change where a plan does not fit (train/plan/memory_advice.h). Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "core/layer_cost.h"
#include "core/plan.h"
#include "tune/chunk_trials.h"

namespace sluice::tune {

// What a plan is estimated from.
struct MemoryModel {
  std::vector<LayerCost> layers;
  bool shares_memory = true;  // device_bytes()
  int processes = 1;
};

// Samples of the global batch that a replica gets, rounded up.
[[nodiscard]] std::int64_t replica_samples(const MemoryModel& model, const Plan& plan);

// Samples of the largest micro-batch. replicas: over all processes.
[[nodiscard]] std::int64_t largest_micro_batch(std::int64_t global_batch, std::int64_t replicas, int chunks);
[[nodiscard]] std::int64_t largest_micro_batch(const Plan& plan, int processes = 1);

// What the frozen layers take: their parameters, which all devices hold, or the first one for all that share its
// memory, their weights as kernels use them, and what they make of a device's share of the samples, before the first
// stage takes it.
[[nodiscard]] std::uint64_t frozen_bytes(const MemoryModel& model, const Plan& plan, std::size_t device);

// What each device of a replica needs, each slot on a device of its own; nothing for a plan that does not run.
[[nodiscard]] std::optional<std::vector<std::uint64_t>> estimate_device_bytes(const MemoryModel& model,
                                                                              const Plan& plan);

// The same of all local replicas, [replica * devices + device]. Of parameters and optimizer states all replicas in one
// memory share one copy, which is charged to the first one's devices.
[[nodiscard]] std::optional<std::vector<std::uint64_t>> estimate_slot_bytes(const MemoryModel& model, const Plan& plan);

// The most that a device needs.
[[nodiscard]] std::optional<std::uint64_t> estimate_bytes(const MemoryModel& model, const Plan& plan);

// 1, 2, 4, ... from `least` to at most `most`, and whether each is estimated to fit `limit` (bytes of a slot; 0: any).
// More of them may need more: with several, transformed weights are kept between them.
[[nodiscard]] std::vector<ChunkCandidate> estimate_chunks(const MemoryModel& model, Plan plan, int least, int most,
                                                          std::uint64_t limit);

// The cut into the plan's number of stages that needs least memory; that of `plan` where its schedule does not exist.
[[nodiscard]] Partition smallest_partition(const MemoryModel& model, const Plan& plan);

}  // namespace sluice::tune
