// cold_caches: evicts a device's caches, as the activations of a step do. Internal to src/measure. Threads: one.
#pragma once

#include <ATen/ATen.h>

namespace sluice::measure {

class ColdCaches {
 public:
  explicit ColdCaches(const at::TensorOptions& options) : others_(at::zeros({kBytes}, options.dtype(at::kByte))) {}

  void evict() { others_.add_(1); }

 private:
  static constexpr std::int64_t kBytes = std::int64_t{64} << 20;  // larger than the caches of a core or a GPU
  at::Tensor others_;
};

}  // namespace sluice::measure
