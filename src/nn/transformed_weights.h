// transformed_weights: weights in the form in which a kernel multiplies them, kept while the micro-batches of a pass
// use them: for Winograd's convolutions (winograd.h), or rounded to bfloat16 (bfloat16.h), laid out in blocks for
// oneDNN too. At 4 samples a micro-batch, transforming anew for each is a quarter of ResNet-18's time. Not here: the
// transforms. Memory: for 3x3 convolutions, 16/9 of the weight for each use, or 36/9 with F(4x4); in bfloat16 half of
// it. Life: clear it before the weights change. Threads: one at a time.
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
  // Makes what lives while a weight is transformed: a scope that charges the memory of the result.
  using Charge = std::function<std::shared_ptr<void>()>;

  explicit TransformedWeights(Charge charge = {}) : charge_(std::move(charge)) {}

  // What transform() gives for the weight and tiles of so many outputs a side (kBfloat16: for so many joined weights,
  // of which it is the first; kBlockedBfloat16: for that stride), or gave before.
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
  std::map<std::tuple<const void*, Use, int>, at::Tensor> kept_;  // by the address of the weight's values
};

}  // namespace sluice::nn
