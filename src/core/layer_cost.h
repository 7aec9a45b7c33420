// layer_cost: what one layer of a model costs on one device, as measured. Planning works on these numbers alone.
#pragma once

#include <cstdint>

namespace sluice {

struct LayerCost {
  double forward_s = 0;   // seconds per micro-batch
  double backward_s = 0;  // seconds per micro-batch, input and weight gradient together
  std::uint64_t parameter_bytes = 0;
  std::uint64_t activation_bytes = 0;  // output per micro-batch

  [[nodiscard]] double total_s() const { return forward_s + backward_s; }
};

}  // namespace sluice
