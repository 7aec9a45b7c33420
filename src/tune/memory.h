// memory: the bytes that a stage of measured layers holds, for a schedule's peak_bytes() (pipeline/schedule/memory.h).
// Pure. Not here: measuring them (measure/layer_bytes.h), counting them in a run (pipeline/live_bytes.h).
// Units: bytes; samples of a micro-batch.
#pragma once

#include <cstdint>
#include <span>

#include "core/layer_cost.h"
#include "pipeline/schedule/memory.h"

namespace sluice::tune {

// What a stage's memory depends on besides its layers.
struct StageRole {
  bool is_first = false;  // its input needs no gradient
  bool is_last = false;   // it computes the loss
  bool recomputes = false;
  // A step has one micro-batch: weights that were transformed for a kernel are not kept for a next one.
  bool one_micro_batch = false;
  // With put-off weight gradients: the next stage keeps its input (our output) until its W, the previous stage its
  // output gradient (our input gradient).
  bool next_stashes_input = false;
  bool previous_stashes_gradient = false;
};

// What a stage keeps of a micro-batch between its actions: `activation` and `stash` alone, as pipeline::LiveBytes
// counts them. That is the stage's input and what autograd saves, each tensor once; with recomputation instead the
// inputs of its layers and the gradient of the loss.
[[nodiscard]] pipeline::StageBytes live_bytes(std::span<const LayerCost> layers, std::uint64_t samples,
                                              const StageRole& role);

// All that a stage takes on its device: the same, and weights (transformed ones too), gradients, optimizer state, and
// what actions work with while they run.
// shares_memory: devices are CPU devices, in one memory. Then a tensor is charged to the device that made it: the
// stage's input is not charged here, and its output and input gradient are charged here while its neighbours use them.
// Without it a stage gets copies of its own; the originals are charged to the device that made them, and are not
// counted here.
[[nodiscard]] pipeline::StageBytes device_bytes(std::span<const LayerCost> layers, std::uint64_t samples,
                                                const StageRole& role, bool shares_memory);

}  // namespace sluice::tune
