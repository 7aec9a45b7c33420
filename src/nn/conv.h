// conv: 2-d convolution without dilation, as one autograd node with split backward, and the module that owns it.
// Activations and weights are channels_last everywhere. Winograd's algorithm (winograd.h) runs if it is allowed and
// pays off, else oneDNN or cuDNN through ATen. Double backward is not supported.
#pragma once

#include <optional>

#include "nn/registry.h"

namespace sluice::nn {

struct ConvShape {
  std::int64_t in, out, kernel;
  std::int64_t stride = 1;
  std::int64_t padding = 0;
  std::int64_t groups = 1;  // divides in and out; groups = in = out: depthwise
};

// x: [N, in, H, W]; weight: [out, in / groups, kernel, kernel]; bias: [out]. Returns [N, out, H', W'], channels_last.
// queue and transformed: null, or objects that outlive the backward pass.
at::Tensor conv2d(const at::Tensor& x, const at::Tensor& weight, const std::optional<at::Tensor>& bias,
                  std::int64_t stride, std::int64_t padding, WeightGradQueue* queue, TransformedWeights* transformed,
                  Winograd winograd = Winograd::k2x2);

class Conv2d {
 public:
  enum class Bias { kNone, kZero, kZeroNormal, kTorchDefault };
  // Registers `name`.weight, and `name`.bias unless kNone, drawn like torchvision's ResNet and VGG (kaiming normal,
  // fan_out); kZeroNormal: its ConvNeXt (deviation 0.02); kTorchDefault: torch.nn.Conv2d.
  Conv2d(Registry& registry, const std::string& name, const ConvShape& shape, Bias bias);

  [[nodiscard]] at::Tensor operator()(const at::Tensor& x, const ForwardContext& context) const;

 private:
  ConvShape shape_;
  at::ScalarType activations_;
  Parameter* weight_;
  Parameter* bias_ = nullptr;
};

}  // namespace sluice::nn
