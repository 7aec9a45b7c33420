// linear: y = x w' + b over the last dimension, as one autograd node with split backward, and the module that owns w
// and b. Several weights over the same input (query, key, value) run as one product. Types: float32, float64, or x in
// bfloat16 with float32 parameters (bfloat16.h). Double backward is not supported.
#pragma once

#include <optional>
#include <span>

#include "nn/lora.h"
#include "nn/registry.h"

namespace sluice::nn {

enum class WeightLayout : std::uint8_t {
  kOutIn,  // torch's: y = x w'
  kInOut,  // GPT-2's (Hugging Face's Conv1D): y = x w
};

// x: [..., in]; weights: [out_i, in], or [out_i, ...] with `in` values per row; biases: [out_i], or an empty list.
// Returns [..., sum of out_i]. kInOut: one weight, [in, out].
at::Tensor linear(const at::Tensor& x, const std::vector<at::Tensor>& weights, const std::vector<at::Tensor>& biases,
                  const ForwardContext& context, WeightLayout layout = WeightLayout::kOutIn);

struct LinearInit {
  Init weight;
  std::optional<Init> bias;  // nothing: the layer has no bias
  static LinearInit torch_default(std::int64_t in) { return {Init::uniform_fan_in(in), Init::uniform_fan_in(in)}; }
  static LinearInit transformer(double deviation = 0.02) { return {Init::normal(deviation), Init::constant(0)}; }
  static LinearInit without_bias(double deviation) { return {Init::normal(deviation), std::nullopt}; }
};

// Adds an adapter (lora.h) to its product if the registry's options name it.
class Linear {
 public:
  Linear(Registry& registry, const std::string& name, std::int64_t in, std::int64_t out, const LinearInit& init,
         WeightLayout layout = WeightLayout::kOutIn);

  [[nodiscard]] at::Tensor operator()(const at::Tensor& x, const ForwardContext& context) const;
  [[nodiscard]] at::Tensor without_bias(const at::Tensor& x, const ForwardContext& context) const;
  [[nodiscard]] const at::Tensor& weight() const { return weight_->value; }
  [[nodiscard]] bool has_bias() const { return bias_ != nullptr; }
  [[nodiscard]] const at::Tensor& bias() const { return bias_->value; }  // Requires: has_bias().
  [[nodiscard]] WeightLayout layout() const { return layout_; }

  // One product for several layers over x, in the type of x. A layer with the layout [in, out] must be the only one.
  [[nodiscard]] static at::Tensor product(const at::Tensor& x, std::span<const Linear* const> layers, bool with_biases,
                                          const ForwardContext& context);

 private:
  WeightLayout layout_;
  at::ScalarType activations_;
  Parameter* weight_;
  Parameter* bias_;  // null: no bias
  std::optional<Lora> lora_;
};

// One product for several kOutIn layers over x, in the type of x. All have a bias, or none. Returns their outputs side
// by side.
at::Tensor linear_packed(const at::Tensor& x, std::span<const Linear* const> layers, const ForwardContext& context);

}  // namespace sluice::nn
