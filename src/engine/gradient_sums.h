// gradient_sums: sums the gradients of steps and takes the L1 norm of the sum in each layer, for the gradient freeze
// rules (freeze/policy.h). Gradients are added over steps, replicas and processes before the norm is taken, so opposite
// gradients cancel.
// The sums cover what an optimizer updates: copies of tied parameters count with their owner, untrained parameters have
// norm 0.
// Memory: one more buffer of that size and of the gradients' type, in the memory of replica 0's stages, counted as
// gradients. Plans do not reserve it. Accuracy: in float32, n additions change an element by at most n 2^-24 of the
// largest partial sum, usually about sqrt(n) 2^-24; after 10 000 steps, a norm by about 1e-6 of itself. Norms are taken
// in float64. Sums in float64 would take twice the memory and three to five times as long.
// Threads: one; the stages' own threads do the work. Errors: OutOfMemoryError of the constructor; those of the
// executor.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>

#include "engine/compose.h"

namespace sluice::engine {

class GradientSums {
 public:
  // Starts with zeros. Requires: the composition outlives it and changes only its number of chunks.
  explicit GradientSums(const Composition& composition);

  // Adds gradient / divisor of a step. Requires: replica 0 has complete gradients, summed over replicas and processes,
  // with those of tied copies added to their owners'. Call before the update, which divides the gradients in place.
  void add(double divisor);

  // [layer of the model]: L1 norms of the sums; 0 for frozen layers, not finite if a gradient was not finite. Resets
  // the sums to zero. All processes add the same gradients, so their norms differ at most by the rounding of the norm.
  [[nodiscard]] std::vector<double> take();

 private:
  struct Part {
    int layer;
    std::int64_t begin, numel;
  };
  struct StageSums {
    at::Tensor flat;
    std::vector<Part> parts;
  };
  [[nodiscard]] static std::vector<Part> parts_of(const pipeline::Stage& stage, int first_layer);

  pipeline::Executor& executor_;
  int layers_;  // of the model
  std::shared_ptr<std::vector<StageSums>> stages_;
};

}  // namespace sluice::engine
