// flops: the floating-point operations of the matrix products that layers ask for, counted where they are called. One
// multiply-add is two. Counted: convolutions, linear layers, attention's two products. Not counted: everything whose
// work is a small multiple of its bytes (norms, activations, pooling, the loss, the optimizer), and, being the model's
// own operations, what a kernel saves (winograd.h) or repeats (recompute).
// A forward pass counts its backward too, by what requires a gradient. Threads: a count per thread.
#pragma once

#include <ATen/core/Tensor.h>

#include "core/flops.h"

namespace sluice::nn {

// One product of an input and a weight (or of two inputs): `multiply_adds` forward, and as many again for each operand
// that gets a gradient.
void count_product(ProductKind kind, double multiply_adds, const at::Tensor& a, const at::Tensor& b);

// What the calling thread counts in its life is forgotten: work that is done once more than the model asks for.
class UncountedFlops {
 public:
  UncountedFlops();
  ~UncountedFlops();
  UncountedFlops(const UncountedFlops&) = delete;
  UncountedFlops& operator=(const UncountedFlops&) = delete;

 private:
  FlopCount before_;
};

// What the calling thread has counted since it was asked last.
[[nodiscard]] FlopCount take_flops();
// Of work that nobody counts while it runs: recorded work that runs again (device/graph.h).
void add_flops(const FlopCount& flops);

}  // namespace sluice::nn
