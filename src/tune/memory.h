// memory: the bytes that a stage of measured layers holds, for a schedule's peak_bytes() (pipeline/schedule/memory.h).
// Pure. Not here: measuring them (train/layer_bytes.h), counting them in a run (pipeline/live_bytes.h).
// Units: bytes; samples of a micro-batch.
#pragma once

#include <cstdint>
#include <span>

#include "core/layer_cost.h"
#include "pipeline/schedule/memory.h"

namespace sluice::tune {

// What tells in a stage's memory besides its layers.
struct StageRole {
  bool is_first = false;  // its input needs no gradient
  bool is_last = false;   // the loss follows
  bool recomputes = false;
  bool one_micro_batch = false;  // in a step: weights are not kept transformed for others
  // What its neighbours keep for weight gradients that are put off, of what they are passed.
  bool next_stashes_input = false;
  bool previous_stashes_gradient = false;
};

// `activation` and `stash` alone, as pipeline::LiveBytes counts them: what autograd saves, each tensor once, and the
// stage's input; with recomputation the inputs of its layers and the gradient of the loss.
[[nodiscard]] pipeline::StageBytes live_bytes(std::span<const LayerCost> layers, std::uint64_t samples,
                                              const StageRole& role);

// What a device is charged for the stage: weights (transformed ones too), gradients and optimizer state too, and what
// actions take while they run. With shares_memory (CPU devices, device/memory.h) a tensor is its maker's: the stage's
// input is not charged here, its output and its input gradient are lent to its neighbours. Without, what
// it is passed is a copy of its own; the original on its way, which another device has, is not counted.
[[nodiscard]] pipeline::StageBytes device_bytes(std::span<const LayerCost> layers, std::uint64_t samples,
                                                const StageRole& role, bool shares_memory);

}  // namespace sluice::tune
