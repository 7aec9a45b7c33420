// embedding: looks up a table row for each token, with split backward, and the module that owns the table. The gradient
// of the table is dense. Double backward is not supported.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <string>

#include "nn/registry.h"

namespace sluice::nn {

class WeightGradQueue;

// tokens: [...] int64, each 0 .. rows - 1; table: [rows, width]. Returns [..., width].
at::Tensor embedding(const at::Tensor& tokens, const at::Tensor& table, WeightGradQueue* queue);

class Embedding {
 public:
  Embedding(Registry& registry, const std::string& name, std::int64_t rows, std::int64_t width, const Init& init)
      : table_(&registry.add_parameter(name + ".weight", {rows, width}, init)) {}

  [[nodiscard]] at::Tensor operator()(const at::Tensor& tokens, const ForwardContext& context) const {
    return embedding(tokens, table_->value, context.weight_queue);
  }

 private:
  Parameter* table_;
};

}  // namespace sluice::nn
