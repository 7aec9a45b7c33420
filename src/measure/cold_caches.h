// cold_caches: evicts everything else from a device's caches, as the activations of a step do. Internal to
// src/measure. Threads: one.
#pragma once

#include <ATen/ATen.h>

namespace sluice::measure {

class ColdCaches {
 public:
  // options: of the device.
  explicit ColdCaches(const at::TensorOptions& options) : others_(at::zeros({kBytes}, options.dtype(at::kByte))) {}

  void evict() { others_.add_(1); }

 private:
  static constexpr std::int64_t kBytes = std::int64_t{64} << 20;  // more than the caches of a core or a GPU hold
  at::Tensor others_;
};

}  // namespace sluice::measure
