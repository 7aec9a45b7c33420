// gradient_sums: the gradients of steps added up, and the L1 norm of the sum in each layer: what the gradient freeze
// rules decide from (freeze/policy.h). First the gradients are added, over steps, replicas and processes, then the norm
// is taken: opposite gradients cancel out.
// Not here: which layers a unit is (freeze/unit_norms.h), when to take the norms.
// Of what an optimizer updates: copies of tied parameters count with their owner, what is not trained has norm 0.
// Memory: one more buffer of that size and of the gradients' type, in the memory of replica 0's stages, counted as
// gradients. No plan leaves room for it beforehand. Accuracy: in float32 n additions change an element by at most
// n 2^-24 of the largest sum on the way, about sqrt(n) 2^-24 as a rule: 10 000 steps, a norm by some 1e-6 of itself.
// The norm of a sum is taken in float64. Sums of float64 would take twice the memory and three to five times as long.
// Threads: one; the work is done by the stages' own. Errors: OutOfMemoryError of the constructor; those of the
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
  // Zeros. Requires: the composition outlives it, and stays as it is but for the number of chunks.
  explicit GradientSums(const Composition& composition);

  // Of a step whose gradients replica 0 has complete: summed over replicas and processes, those of tied copies added to
  // their owners'. Call before the update, which divides the gradients in place. Adds gradient / divisor.
  void add(double divisor);

  // [layer of the model]: L1 norms of the sums, of frozen layers 0; not finite where a gradient was not. Zeros again
  // from then on. All processes add the same gradients, so their norms differ by the rounding of the norm at most.
  [[nodiscard]] std::vector<double> take();

 private:
  struct Part {
    int layer;  // of the model
    std::int64_t begin, numel;
  };
  struct StageSums {
    at::Tensor flat;  // laid out as the gradients, as far as they are updated
    std::vector<Part> parts;
  };
  [[nodiscard]] static std::vector<Part> parts_of(const pipeline::Stage& stage, int first_layer);

  pipeline::Executor& executor_;
  int layers_;  // of the model
  std::shared_ptr<std::vector<StageSums>> stages_;
};

}  // namespace sluice::engine
