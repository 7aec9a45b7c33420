// memory_table: which global batches fit the memory of a device, in how many micro-batches: `batch x chunks -> fits /
// out of memory`, and the largest batch that fits. From layers that were measured, for a limit that no device here
// needs to have. Not here: a plan's bytes (memory_model.h), measuring, a run that proves an answer
// (train/study/memory_proof.h). Pure. Units: bytes of a device, samples. Errors: none; what cannot be is an answer.
//
// Two numbers for each plan. `expected` is memory_model.h's estimate, for the worst times that a schedule's actions can
// have. `bound` is what no run of the plan exceeds, and decides what fits: the same with the most that any kernel takes
// that may run (micro-batches between two measured sizes may run those of either), and what no layer's bytes have in
// them. On CPU devices that is kSmallTensors: losses, scales and indices of the micro-batches, a few bytes each, and a
// gradient of a small layer before it is added up. Where devices have a memory of their own, their allocator hands out
// blocks of whole megabytes and libraries take a workspace, which nobody has measured here: there a ninth more, the
// margin with which runs plan too (train/plan/choose_plan.h).
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
  std::vector<LayerCost> most;  // no byte of it less than what any kernel takes that may run
};

struct MemoryQuestion {
  PlanRequest request;  // its chunks and global batch are those of a cell; its limit is what plans are made for
  StepOverheads overheads;
  std::uint64_t limit = 0;                                        // of a device, above 0
  std::vector<std::int64_t> measured;                             // micro-batches, ascending, at least one
  std::function<MemoryCosts(std::int64_t micro_batch)> costs_at;  // samples of the largest one
};

enum class Fit : std::uint8_t { kFits, kOutOfMemory, kImpossible };
[[nodiscard]] const char* to_word(Fit fit);  // "fits", "out of memory", "impossible"

struct MemoryCell {
  std::int64_t global_batch = 1;
  int chunks = 1;
  Fit fit = Fit::kImpossible;
  std::string why;             // of what is impossible
  std::uint64_t expected = 0;  // of the fullest device; 0 where impossible
  std::uint64_t bound = 0;
  Plan plan;
};

[[nodiscard]] MemoryCell memory_cell(const MemoryQuestion& question, std::int64_t global_batch, int chunks);

// The largest multiple of replicas x chunks that fits: only the largest micro-batch counts, so one sample more of
// global batch needs as much as a whole row of them. Exact where more samples between two measured sizes, and beyond
// them, never need less. Nothing where none fits. No more than `most`.
[[nodiscard]] std::optional<MemoryCell> largest_batch(const MemoryQuestion& question, int chunks,
                                                      std::int64_t most = std::int64_t{1} << 40);

// 1, 2, 4, ... and the request's own number, as many as there are samples of a replica, at most 64.
[[nodiscard]] std::vector<int> usual_chunks(const MemoryQuestion& question);

// The request's batch, three halves of it and its doubles, up to the first with which no number of chunks fits.
[[nodiscard]] std::vector<std::int64_t> usual_batches(const MemoryQuestion& question, const std::vector<int>& chunks);

}  // namespace sluice::tune
