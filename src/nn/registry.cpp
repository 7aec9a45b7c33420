#include "nn/registry.h"

namespace sluice::nn {

Parameter& Registry::add_parameter(const std::string& name, at::IntArrayRef sizes, const Init& init,
                                   at::MemoryFormat layout) {
  parameters_.push_back(std::make_unique<Parameter>(Parameter{name, make_value(name, sizes, init, layout)}));
  return *parameters_.back();
}

Parameter& Registry::add_parameter(const std::string& name, at::IntArrayRef sizes, const Init& init,
                                   ParameterRole role) {
  Parameter& parameter = add_parameter(name, sizes, init);
  parameter.role = role;
  return parameter;
}

Parameter& Registry::add_tied_parameter(const std::string& name, const std::string& tied_to, at::IntArrayRef sizes,
                                        const Init& init) {
  parameters_.push_back(std::make_unique<Parameter>(
      Parameter{name, make_value(tied_to, sizes, init, at::MemoryFormat::Contiguous), tied_to}));
  return *parameters_.back();
}

at::Tensor Registry::make_value(const std::string& key, at::IntArrayRef sizes, const Init& init,
                                at::MemoryFormat layout) const {
  const at::Tensor value = options_.draw_weights ? draw(init, sizes, options_.dtype, options_.seed, key)
                                                 : at::empty(sizes, at::TensorOptions(at::kMeta).dtype(options_.dtype));
  return value.contiguous(layout).requires_grad_();
}

Buffer& Registry::add_buffer(const std::string& name, at::Tensor value) {
  buffers_.push_back(std::make_unique<Buffer>(Buffer{name, std::move(value)}));
  return *buffers_.back();
}

std::vector<Parameter*> Registry::parameters() const {
  std::vector<Parameter*> all;
  for (const auto& parameter : parameters_) all.push_back(parameter.get());
  return all;
}

std::vector<Buffer*> Registry::buffers() const {
  std::vector<Buffer*> all;
  for (const auto& buffer : buffers_) all.push_back(buffer.get());
  return all;
}

}  // namespace sluice::nn
