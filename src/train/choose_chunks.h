// choose_chunks: the number of micro-batches a step where pipeline.chunks = "auto" leaves it open: the one whose whole
// steps take least time, among those that a memory limit leaves room for. Not here: the rest of the Plan
// (choose_plan.h). Errors: those of a training step; OutOfMemoryError where no number fits, says what would
// (memory_advice.h).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/loader.h"
#include "train/chunk_trials.h"
#include "train/memory_advice.h"
#include "train/setup.h"

namespace sluice::train {

// Times a few steps without updates, in the order and the budget of chunk_trials.h, and gives the fastest number of
// chunks; weights and buffers stay as they were. Every process takes part, and all get the same answer.
struct ChunkChoice {
  int chunks = 1;
  std::string why;       // "1: 30.1 ms, 2: 27.9 ms, 4: 29.0 ms"; empty where there was no choice, or no time for one
  std::string left_out;  // "; 8 was not tried: ..."; empty where nothing was
};
[[nodiscard]] ChunkChoice choose_chunks(const Setup& setup, Composition& composition, const StepBatch& batch);

// Where the configuration leaves them open: by choose_chunks() on the batch at `start`, but by rule where every run
// must be the same. Rank 0 logs it.
[[nodiscard]] int decide_chunks(const Setup& setup, Composition& composition, data::Position start);

// 1, 2, 4, ... from `least` to at most `most`, and whether each is estimated to fit `limit` (bytes of a place; 0: any).
// More of them may need more: with several, transformed weights are kept between them.
[[nodiscard]] std::vector<ChunkCandidate> estimate_chunks(const MemoryModel& model, Plan plan, int least, int most,
                                                          std::uint64_t limit);

}  // namespace sluice::train
