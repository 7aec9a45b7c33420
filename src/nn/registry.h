// registry: owns the parameters and buffers of a layer, drawing initial values; RegisteredLayer is the base of every
// layer whose parts (Linear, Conv2d, BatchNorm2d, ...) register themselves by their public names. Not here: moving
// parameters between devices or into flat buffers; a Stage does that by replacing Parameter::value.
#pragma once

#include <ATen/ATen.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "nn/init.h"
#include "nn/layer.h"

namespace sluice::nn {

struct LayerOptions {
  std::uint64_t seed = 0;
  at::ScalarType dtype = at::kFloat;
  bool draw_weights = true;  // false: the layer can be counted and described, not run
  bool in_bf16 = false;      // products and what they take and give in bfloat16 (bfloat16.h)
};

// Parameters and buffers in the order of their registration, at addresses that stay.
class Registry {
 public:
  explicit Registry(const LayerOptions& options) : options_(options) {}

  // A new parameter drawn from `init` under (seed, name): the values do not depend on dtype (beyond rounding), layout,
  // order. Without draw_weights it has no values and no memory (torch's meta device), only its shape and type.
  Parameter& add_parameter(const std::string& name, at::IntArrayRef sizes, const Init& init,
                           at::MemoryFormat layout = at::MemoryFormat::Contiguous);
  Parameter& add_parameter(const std::string& name, at::IntArrayRef sizes, const Init& init, ParameterRole role);
  // A copy of another layer's parameter (Parameter::tied_to), drawn as that one is: under its name.
  Parameter& add_tied_parameter(const std::string& name, const std::string& tied_to, at::IntArrayRef sizes,
                                const Init& init);
  Buffer& add_buffer(const std::string& name, at::Tensor value);
  [[nodiscard]] at::ScalarType dtype() const { return options_.dtype; }  // of parameters
  // What products take and give.
  [[nodiscard]] at::ScalarType activations() const { return options_.in_bf16 ? at::kBFloat16 : options_.dtype; }
  [[nodiscard]] std::vector<Parameter*> parameters() const;
  [[nodiscard]] std::vector<Buffer*> buffers() const;

 private:
  // `key`: the name that the values are drawn under.
  [[nodiscard]] at::Tensor make_value(const std::string& key, at::IntArrayRef sizes, const Init& init,
                                      at::MemoryFormat layout) const;

  LayerOptions options_;
  std::vector<std::unique_ptr<Parameter>> parameters_;
  std::vector<std::unique_ptr<Buffer>> buffers_;
};

class RegisteredLayer : public Layer {
 public:
  RegisteredLayer(std::string name, const LayerOptions& options) : Layer(std::move(name)), registry_(options) {}

  [[nodiscard]] std::vector<Parameter*> parameters() override { return registry_.parameters(); }
  [[nodiscard]] std::vector<Buffer*> buffers() override { return registry_.buffers(); }

 protected:
  Registry registry_;
};

}  // namespace sluice::nn
