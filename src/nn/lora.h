// lora: low-rank adapters of linear layers (Hu et al. 2021, arXiv:2106.09685): y += scale x a' b', for the columns of y
// that belong to the layer. One autograd node with split backward serves all layers that share x. Backward works
// without a gradient of the layer's own weight. Types as in linear.h. Double backward is not supported.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "nn/registry.h"

namespace sluice::nn {

struct LoraOptions {
  std::int64_t rank = 0;
  double scale = 1;              // alpha / rank
  double dropout = 0;            // of x, for the adapters alone
  std::set<std::string> layers;  // names of the linear layers that have an adapter
};

struct LoraPart {
  at::Tensor a, b;         // [rank, in], [out, rank]
  std::int64_t begin = 0;  // of its columns in y
};

// y: [rows, columns], changed in place; x: [rows, in]. Returns y.
at::Tensor add_adapters(const at::Tensor& y, const at::Tensor& x, const std::vector<LoraPart>& parts, double scale,
                        const ForwardContext& context);

// The parameters NAME.lora_A.weight and NAME.lora_B.weight of a linear layer.
struct Lora {
  // Adds the parameters if the options of `registry` name the layer. Initial values as in peft: b is 0.
  static std::optional<Lora> make(Registry& registry, const LinearInfo& layer);

  Parameter* a;
  Parameter* b;
  double scale, dropout;
};

}  // namespace sluice::nn
