// choose_chunks: the number of micro-batches if pipeline.chunks = "auto": the fastest among those that fit the memory.
// Errors: those of a training step; OutOfMemoryError if no number fits, with advice (memory_advice.h).
#pragma once

#include <string>

#include "data/loader.h"
#include "engine/engine.h"
#include "train/setup/setup.h"
#include "tune/chunk_trials.h"

namespace sluice::train {

// Times a few steps without updates; tune/chunk_trials.h decides which numbers to try. Weights and buffers keep their
// values. All processes call it together and get the same answer.
struct ChunkChoice {
  int chunks = 1;
  std::string why;       // "1: 30.1 ms, 2: 27.9 ms, 4: 29.0 ms"; empty without a choice, or without time for one
  std::string left_out;  // "; 8 was not tried: ..."; may be empty
};
[[nodiscard]] ChunkChoice choose_chunks(const Setup& setup, engine::Engine& engine, const engine::StepBatch& batch);

void decide_chunks(const Setup& setup, engine::Engine& engine, data::Position start);

}  // namespace sluice::train
