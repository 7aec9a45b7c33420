// init: distributions of initial weights, drawn by (seed, parameter name), so that they depend on neither partition,
// device, order of construction nor number type. Sources: torchvision's ResNet (kaiming_normal_, fan_out),
// torch.nn.Linear and Conv2d (uniform by fan-in), Hugging Face's ViT (truncated normal with deviation 0.02).
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <string>

namespace sluice::nn {

struct Init {
  enum class Kind { kConstant, kNormal, kUniform };
  Kind kind = Kind::kConstant;
  double scale = 0;  // the constant, the deviation, or the bound of [-bound, bound)

  static Init constant(double value) { return {Kind::kConstant, value}; }
  static Init normal(double deviation) { return {Kind::kNormal, deviation}; }
  static Init uniform(double bound) { return {Kind::kUniform, bound}; }
  static Init kaiming_fan_out(std::int64_t fan_out);  // normal, sqrt(2 / fan_out): for layers before a ReLU
  static Init uniform_fan_in(std::int64_t fan_in);    // uniform, 1 / sqrt(fan_in): torch's default for weight and bias
};

// Draws in float64 and rounds to dtype (float64, float32 or bfloat16). The tensor is contiguous and on the CPU.
at::Tensor draw(const Init& init, at::IntArrayRef sizes, at::ScalarType dtype, std::uint64_t seed,
                const std::string& name);

}  // namespace sluice::nn
