#include "nn/registry.h"

namespace sluice::nn {

Parameter& Registry::add_parameter(const std::string& name, at::IntArrayRef sizes, const Init& init,
                                   at::MemoryFormat layout) {
  at::Tensor value = options_.draw_weights
                         ? draw(init, sizes, options_.dtype, options_.seed, name).contiguous(layout)
                         : at::empty(sizes, at::TensorOptions(at::kMeta).dtype(options_.dtype), layout);
  value.requires_grad_();
  parameters_.push_back(std::make_unique<Parameter>(Parameter{name, std::move(value)}));
  return *parameters_.back();
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
