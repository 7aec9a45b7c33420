// gradient_sums: sums the gradients of steps and takes the L1 norm of the sum in each layer, for the gradient freeze
// rules (freeze/policy.h). Opposite gradients of steps, replicas and processes cancel. Copies of tied parameters count
// with their owner, untrained parameters have norm 0.
// Memory: one more gradient buffer in replica 0's stages, which plans do not reserve. Accuracy: in float32, n additions
// change an element by usually about sqrt(n) 2^-24 of the largest partial sum; after 10 000 steps, a norm by about 1e-6
// of itself. Sums in float64 would take twice the memory and three to five times as long.
// Threads: one; the stages' own threads do the work. Errors: OutOfMemoryError of the constructor.
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

  // Requires: replica 0 has complete gradients, summed over replicas, processes and tied copies. Call before the
  // update, which divides the gradients in place.
  void add(double divisor);

  // [layer of the model]: L1 norms, not finite if a gradient was not; sets the sums to zero. Equal in all processes up
  // to the rounding of the norm.
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
