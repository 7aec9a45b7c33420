// registry: owns the parameters and buffers of a layer and draws initial values. RegisteredLayer is the base of layers
// whose parts register themselves by their public names.
#pragma once

#include <ATen/ATen.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "nn/init.h"
#include "nn/layer.h"

namespace sluice::nn {

struct LoraOptions;

struct LayerOptions {
  std::uint64_t seed = 0;
  at::ScalarType dtype = at::kFloat;
  bool draw_weights = true;                           // false: parameters are meta tensors, without values
  bool in_bf16 = false;                               // products and their inputs and outputs in bfloat16 (bfloat16.h)
  std::shared_ptr<const LoraOptions> lora = nullptr;  // null: no adapters
};

class Registry {
 public:
  explicit Registry(const LayerOptions& options) : options_(options) {}

  // Draws from `init` under (seed, name), so the values do not depend on dtype (except for rounding), layout or order.
  // Without draw_weights the parameter has no memory (torch's meta device).
  Parameter& add_parameter(const std::string& name, at::IntArrayRef sizes, const Init& init,
                           at::MemoryFormat layout = at::MemoryFormat::Contiguous);
  Parameter& add_parameter(const std::string& name, at::IntArrayRef sizes, const Init& init, ParameterRole role);
  // Adds a copy of another layer's parameter (Parameter::tied_to), drawn under that parameter's name.
  Parameter& add_tied_parameter(const std::string& name, const std::string& tied_to, at::IntArrayRef sizes,
                                const Init& init);
  Buffer& add_buffer(const std::string& name, at::Tensor value);
  void add_linear(LinearInfo linear) { linears_.push_back(std::move(linear)); }
  [[nodiscard]] at::ScalarType dtype() const { return options_.dtype; }
  [[nodiscard]] at::ScalarType activations() const { return options_.in_bf16 ? at::kBFloat16 : options_.dtype; }
  [[nodiscard]] std::vector<Parameter*> parameters() const;
  [[nodiscard]] std::vector<Buffer*> buffers() const;
  [[nodiscard]] const std::vector<LinearInfo>& linears() const { return linears_; }
  [[nodiscard]] const LoraOptions* lora() const { return options_.lora.get(); }

 private:
  [[nodiscard]] at::Tensor make_value(const std::string& key, at::IntArrayRef sizes, const Init& init,
                                      at::MemoryFormat layout) const;

  LayerOptions options_;
  std::vector<std::unique_ptr<Parameter>> parameters_;
  std::vector<std::unique_ptr<Buffer>> buffers_;
  std::vector<LinearInfo> linears_;
};

class RegisteredLayer : public Layer {
 public:
  RegisteredLayer(std::string name, const LayerOptions& options) : Layer(std::move(name)), registry_(options) {}

  [[nodiscard]] std::vector<Parameter*> parameters() override { return registry_.parameters(); }
  [[nodiscard]] std::vector<Buffer*> buffers() override { return registry_.buffers(); }
  [[nodiscard]] std::vector<LinearInfo> linears() const override { return registry_.linears(); }

 protected:
  Registry registry_;
};

}  // namespace sluice::nn
