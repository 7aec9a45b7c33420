// flops: counts the floating-point operations of matrix products when layers call them; one multiply-add is two. A
// forward pass also counts its backward, according to what requires a gradient. The count is the model's: it ignores
// what a kernel saves (winograd.h), recomputation, and operations with little work per byte. One count per thread.
#pragma once

#include <ATen/core/Tensor.h>

#include "core/flops.h"

namespace sluice::nn {

// Counts one product of two operands: `multiply_adds` forward, and as many for each operand that gets a gradient.
void count_product(ProductKind kind, double multiply_adds, const at::Tensor& a, const at::Tensor& b);

// Discards what the calling thread counts during the object's lifetime, for work that is repeated.
class UncountedFlops {
 public:
  UncountedFlops();
  ~UncountedFlops();
  UncountedFlops(const UncountedFlops&) = delete;
  UncountedFlops& operator=(const UncountedFlops&) = delete;

 private:
  FlopCount before_;
};

[[nodiscard]] FlopCount take_flops();
// Adds operations of a recorded CUDA graph, which are not counted when the graph is launched (device/graph.h).
void add_flops(const FlopCount& flops);

}  // namespace sluice::nn
