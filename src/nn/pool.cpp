#include "nn/pool.h"

#include <ATen/ATen.h>

namespace sluice::nn {

at::Tensor max_pool2d(const at::Tensor& x, const PoolShape& shape) {
  return at::max_pool2d(x, {shape.kernel, shape.kernel}, {shape.stride, shape.stride}, {shape.padding, shape.padding});
}

at::Tensor adaptive_avg_pool2d(const at::Tensor& x, std::int64_t size) {
  // The two common cases need no kernel, and are exact and deterministic on every device.
  if (x.size(2) == size && x.size(3) == size) return x;
  if (x.size(2) == 1 && x.size(3) == 1) return x.expand({-1, -1, size, size});
  return at::adaptive_avg_pool2d(x, {size, size});
}

}  // namespace sluice::nn
