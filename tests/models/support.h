// support: helpers for the tests of the models.
#pragma once

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "core/concat.h"
#include "models/model.h"

namespace sluice::models {

inline ModelOptions options_of(const std::string& name, const std::string& size = "nano") {
  ModelOptions options;
  options.name = name;
  options.size = size;
  return options;
}

inline std::string describe(const ModelOptions& options) {
  std::ostringstream text;
  for (const auto& layer : make_model(options).layers) {
    text << "# " << layer->name() << "\n";
    for (const auto* p : layer->parameters()) {
      text << p->name << " " << p->value.sizes() << (p->tied_to.empty() ? "" : " = " + p->tied_to) << "\n";
    }
    for (const auto* b : layer->buffers()) text << b->name << " " << b->value.sizes() << "\n";
  }
  return text.str();
}

inline std::string golden(const std::string& file) {
  const char* source = std::getenv("SLUICE_SOURCE_DIR");
  std::ifstream in(concat(source == nullptr ? "." : source, "/tests/golden/", file));
  EXPECT_TRUE(in) << file;
  return {std::istreambuf_iterator<char>(in), {}};
}

inline at::Tensor random_inputs(const Model& model, std::int64_t samples, at::ScalarType type = at::kFloat) {
  const TensorInfo& input = model.inputs.front();
  std::vector<std::int64_t> sizes = input.sizes;
  sizes.insert(sizes.begin(), samples);
  return input.bound == 0 ? at::randn(sizes, type) : at::randint(0, input.bound, sizes, at::kLong);
}

inline at::Tensor forward(Model& model, at::Tensor x, const nn::ForwardContext& context) {
  for (const auto& layer : model.layers) x = layer->forward(x, context);
  return x;
}

}  // namespace sluice::models
