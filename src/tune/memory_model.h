// memory_model: estimates the memory of a whole plan on its devices from measured layers (core/layer_cost.h), at the
// peak of its schedule. It covers tensors; estimate_slot_bytes() also cuBLAS's workspaces. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "core/layer_cost.h"
#include "core/plan.h"
#include "tune/chunk_trials.h"

namespace sluice::tune {

// cuBLAS's workspaces: 32 MiB for each of two threads, the slot's and autograd's.
inline constexpr std::uint64_t kCublasBytesOfSlot = 64 << 20;

struct MemoryModel {
  std::vector<LayerCost> layers;
  bool shares_memory = true;
  int processes = 1;
};

// Samples of the global batch per replica, rounded up.
[[nodiscard]] std::int64_t replica_samples(const MemoryModel& model, const Plan& plan);

[[nodiscard]] std::int64_t largest_micro_batch(std::int64_t global_batch, std::int64_t replicas, int chunks);
[[nodiscard]] std::int64_t largest_micro_batch(const Plan& plan, int processes = 1);

// Bytes of the frozen layers on a device: parameters, weights as kernels use them, and the frozen layers' output for
// the device's share of the samples. If devices share memory, the parameters are charged to the first device.
[[nodiscard]] std::uint64_t frozen_bytes(const MemoryModel& model, const Plan& plan, std::size_t device);

// Bytes per device of a replica, with each slot on its own device; empty for a plan that cannot run.
[[nodiscard]] std::optional<std::vector<std::uint64_t>> estimate_device_bytes(const MemoryModel& model,
                                                                              const Plan& plan);

// Bytes of all local replicas: [replica * devices + device], on GPUs with kCublasBytesOfSlot. Replicas in common memory
// share one copy of parameters and optimizer state, charged to the first replica's devices.
[[nodiscard]] std::optional<std::vector<std::uint64_t>> estimate_slot_bytes(const MemoryModel& model, const Plan& plan);

[[nodiscard]] std::optional<std::uint64_t> estimate_bytes(const MemoryModel& model, const Plan& plan);

// The numbers 1, 2, 4, ... from `least` to `most`, and whether each is estimated to fit `limit` (bytes per slot; 0:
// any). A larger number may need more memory: with several micro-batches, transformed weights are kept between them.
[[nodiscard]] std::vector<ChunkCandidate> estimate_chunks(const MemoryModel& model, Plan plan, int least, int most,
                                                          std::uint64_t limit);

// The cut into the plan's number of stages that needs least memory; the cut of `plan` if it has no schedule.
[[nodiscard]] Partition smallest_partition(const MemoryModel& model, const Plan& plan);

}  // namespace sluice::tune
