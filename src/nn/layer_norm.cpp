#include "nn/layer_norm.h"

#include <torch/csrc/autograd/custom_function.h>

#include "nn/bfloat16.h"
#include "nn/cuda/operations.h"
#include "nn/own_operator.h"

namespace sluice::nn {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

class LayerNormOnGpu : public torch::autograd::Function<LayerNormOnGpu> {
 public:
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                            double epsilon, at::ScalarType type) {
    OwnOperator call("sluice::layer_norm", {x, weight, bias});
    const gpu::LayerNormResult result = gpu::layer_norm(x, weight, bias, epsilon, type);
    call.made({result.y});
    ctx->save_for_backward({x, weight, result.mean, result.inverse_deviation});
    return result.y;
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const variable_list saved = ctx->get_saved_variables();
    const gpu::LayerNormWanted wanted{.x = ctx->needs_input_grad(0),
                                      .weight_and_bias = ctx->needs_input_grad(1) || ctx->needs_input_grad(2)};
    OwnOperator call("sluice::layer_norm_backward", {grads[0], saved[0], saved[1]});
    const auto gradients = gpu::layer_norm_backward(grads[0], saved[0], saved[1], saved[2], saved[3], wanted);
    call.made({gradients.x, gradients.weight, gradients.bias});
    return {gradients.x, gradients.weight, gradients.bias, {}, {}};
  }
};

}  // namespace

at::Tensor layer_norm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, double epsilon,
                      at::ScalarType type) {
  const bool gives_float = type == at::kFloat || type == at::kBFloat16;
  if (gpu::suits(x) && weight.scalar_type() == at::kFloat && gives_float) {
    return LayerNormOnGpu::apply(x, weight, bias, epsilon, type);
  }
  // ATen also accepts bfloat16, but its CPU kernel adds up weight gradients in bfloat16, and its GPU kernel needs one
  // type.
  return at::layer_norm(in_float(x), {x.size(-1)}, weight, bias, epsilon).to(type);
}

}  // namespace sluice::nn
