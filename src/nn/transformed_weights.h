// transformed_weights: keeps weights in the form that a kernel multiplies while the micro-batches of a pass use them:
// transformed for Winograd's convolutions (16/9 of the weight for each use, 36/9 with F(4x4)), or rounded to bfloat16,
// also in oneDNN's blocked layout. Call clear() before the weights change. Threads: one at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <tuple>
#include <utility>

#include <ATen/core/Tensor.h>

namespace sluice::nn {

class TransformedWeights {
 public:
  enum class Use { kForward, kInputGradient, kBfloat16, kBlockedBfloat16 };
  // Makes an object that lives while a weight is transformed: a scope that charges the memory of the result.
  using Charge = std::function<std::shared_ptr<void>()>;

  explicit TransformedWeights(Charge charge = {}) : charge_(std::move(charge)) {}

  // Returns what transform() gave for these arguments, calling it the first time. `tile`: outputs along the side of a
  // tile; kBfloat16: number of joined weights, the first of which is `weight`; kBlockedBfloat16: the stride.
  template <typename Transform>
  [[nodiscard]] const at::Tensor& get(const at::Tensor& weight, Use use, int tile, const Transform& transform) {
    at::Tensor& kept = kept_[{weight.const_data_ptr(), use, tile}];
    if (!kept.defined()) {
      const std::shared_ptr<void> charged = charge_ ? charge_() : nullptr;
      kept = transform();
    }
    return kept;
  }

  [[nodiscard]] std::uint64_t bytes() const {
    std::uint64_t sum = 0;
    for (const auto& [key, kept] : kept_) sum += kept.nbytes();
    return sum;
  }

  void clear() { kept_.clear(); }

 private:
  Charge charge_;
  std::map<std::tuple<const void*, Use, int>, at::Tensor> kept_;
};

}  // namespace sluice::nn
