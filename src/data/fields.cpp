#include "data/fields.h"

#include <ATen/EmptyTensor.h>

namespace sluice::data {

at::Tensor uninitialized(at::IntArrayRef sizes, at::ScalarType type, bool pins) {
  return at::detail::empty_cpu(sizes, type, pins);
}

}  // namespace sluice::data
