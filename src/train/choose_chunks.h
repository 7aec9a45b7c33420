// choose_chunks: the number of micro-batches a step where pipeline.chunks = "auto" leaves it open: the one whose whole
// steps take least time, among those that a memory limit leaves room for. Not here: the rest of the Plan
// (choose_plan.h). Errors: those of a training step; OutOfMemoryError where no number fits, says what would
// (memory_advice.h).
#pragma once

#include <cstdint>
#include <string>

#include "data/loader.h"
#include "train/memory_advice.h"
#include "train/setup.h"

namespace sluice::train {

// Times a few steps without updates at 1, 2, 4, ... chunks and gives the fastest; weights and buffers stay as they
// were. Every process takes part, and all get the same answer.
struct ChunkChoice {
  int chunks = 1;
  std::string why;  // "1: 30.1 ms, 2: 27.9 ms, 4: 29.0 ms"
};
[[nodiscard]] ChunkChoice choose_chunks(const Setup& setup, Composition& composition, const StepBatch& batch);

// Where the configuration leaves them open: by choose_chunks() on the batch at `start`, but by rule where every run
// must be the same. Rank 0 logs it.
[[nodiscard]] int decide_chunks(const Setup& setup, Composition& composition, data::Position start);

// False where `chunks` micro-batches are estimated to need more bytes than `limit` (of a place) and than the number
// that the plan was made for. More of them may: with several, transformed weights are kept between them.
[[nodiscard]] bool is_worth_trying(const MemoryModel& model, Plan plan, int chunks, std::uint64_t limit);

}  // namespace sluice::train
