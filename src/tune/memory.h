// memory: computes the bytes that a stage of measured layers holds, for peak_bytes() (pipeline/schedule/memory.h).
// Pure. Units: bytes; samples of a micro-batch.
#pragma once

#include <cstdint>
#include <span>

#include "core/layer_cost.h"
#include "pipeline/schedule/memory.h"

namespace sluice::tune {

struct StageRole {
  bool is_first = false;  // its input needs no gradient
  bool is_last = false;   // it computes the loss
  bool recomputes = false;
  // The step has one micro-batch, so transformed weights of kernels are not kept for another one.
  bool one_micro_batch = false;
  // With deferred weight gradients, the next stage keeps its input (this stage's output) until its W. The previous
  // stage keeps its output gradient (this stage's input gradient).
  bool next_stashes_input = false;
  bool previous_stashes_gradient = false;
};

// Bytes of a micro-batch between the stage's actions: only `activation` and `stash`, as pipeline::LiveBytes counts
// them: the stage's input and saved tensors, each once; with recomputation the layers' inputs and the gradient of the
// loss.
[[nodiscard]] pipeline::StageBytes live_bytes(std::span<const LayerCost> layers, std::uint64_t samples,
                                              const StageRole& role);

// All memory of a stage on its device: live_bytes() plus weights (also transformed ones), gradients, optimizer state
// and the working memory of running actions.
// shares_memory: the devices are CPU devices in one memory. A tensor is then charged to the device that made it: the
// stage's input is not counted here; its output and input gradient count here while the neighbours use them. Otherwise
// a stage gets copies, and originals are charged to their maker.
[[nodiscard]] pipeline::StageBytes device_bytes(std::span<const LayerCost> layers, std::uint64_t samples,
                                                const StageRole& role, bool shares_memory);

}  // namespace sluice::tune
