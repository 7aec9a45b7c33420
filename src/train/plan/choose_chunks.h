// choose_chunks: the number of micro-batches in a step where pipeline.chunks = "auto" leaves it open: of those that fit
// the memory, the one whose whole steps take least time. Not here: the rest of the Plan (choose_plan.h).
// Errors: those of a training step; OutOfMemoryError where no number fits, which says what would (memory_advice.h).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/loader.h"
#include "engine/engine.h"
#include "train/setup/setup.h"
#include "tune/chunk_trials.h"

namespace sluice::train {

// Times a few steps without updates and gives the number of chunks whose steps were fastest. tune/chunk_trials.h says
// which numbers are tried, in which order, and for how long. Weights and buffers stay as they were. Every process takes
// part, and all get the same answer.
struct ChunkChoice {
  int chunks = 1;
  std::string why;       // "1: 30.1 ms, 2: 27.9 ms, 4: 29.0 ms"; empty where there was no choice, or no time for one
  std::string left_out;  // "; 8 was not tried: ..."; empty where nothing was
};
[[nodiscard]] ChunkChoice choose_chunks(const Setup& setup, engine::Engine& engine, const engine::StepBatch& batch);

// Where the configuration leaves the number of chunks open: applies the one of choose_chunks() on the batch at `start`.
// With train.deterministic, where times must not decide, the plan's own stays. Rank 0 logs it.
void decide_chunks(const Setup& setup, engine::Engine& engine, data::Position start);

}  // namespace sluice::train
