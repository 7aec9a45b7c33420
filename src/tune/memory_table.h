// memory_table: which global batches fit a memory limit, in how many micro-batches, and the largest batch that fits.
// Pure. Units: bytes of a device, samples. Errors: none; impossible combinations are returned as Fit::kImpossible.
//
// `expected` is the estimate of memory_model.h for the worst timing of the schedule's actions. `bound` is never
// exceeded and decides what fits. It uses the most that any kernel that may run needs (between two measured sizes, the
// kernels of either), plus what layers do not count:
// - CPU devices: kSmallTensors, for losses, scales and indices of micro-batches and a small layer's gradient before
//   accumulation.
// - Devices with their own memory: one ninth for the allocator's blocks and libraries (train/plan/choose_plan.h).
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/layer_cost.h"
#include "core/plan.h"
#include "tune/make_plan.h"

namespace sluice::tune {

inline constexpr std::uint64_t kSmallTensors = 64 << 10;

struct MemoryCosts {
  std::vector<LayerCost> expected;
  std::vector<LayerCost> most;  // at least what any kernel needs that may run
};

struct MemoryQuestion {
  PlanRequest request;  // chunks and global batch come from the cell; the memory limit applies to planning
  StepOverheads overheads;
  std::uint64_t limit = 0;
  std::vector<std::int64_t> measured;                             // micro-batches, ascending, at least one
  std::function<MemoryCosts(std::int64_t micro_batch)> costs_at;  // micro_batch: samples of the largest one
};

enum class Fit : std::uint8_t { kFits, kOutOfMemory, kImpossible };
[[nodiscard]] const char* to_word(Fit fit);

struct MemoryCell {
  std::int64_t global_batch = 1;
  int chunks = 1;
  Fit fit = Fit::kImpossible;
  std::string why;
  std::uint64_t expected = 0;  // of the fullest device; 0 if impossible
  std::uint64_t bound = 0;
  Plan plan;
};

[[nodiscard]] MemoryCell memory_cell(const MemoryQuestion& question, std::int64_t global_batch, int chunks);

// The largest multiple of replicas x chunks, up to `most`, that fits; empty if none does.
[[nodiscard]] std::optional<MemoryCell> largest_batch(const MemoryQuestion& question, int chunks,
                                                      std::int64_t most = std::int64_t{1} << 40);

// 1, 2, 4, ... and the request's own number, at most a replica's samples and at most 64.
[[nodiscard]] std::vector<int> usual_chunks(const MemoryQuestion& question);

// The request's batch, 1.5 times it, and doubles, up to the first batch that fits with no number of chunks.
[[nodiscard]] std::vector<std::int64_t> usual_batches(const MemoryQuestion& question, const std::vector<int>& chunks);

}  // namespace sluice::tune
