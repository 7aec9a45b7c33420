#include "nn/gelu.h"

#include <torch/csrc/autograd/custom_function.h>

#include "nn/cuda/operations.h"
#include "nn/kernel_data.h"
#include "nn/own_operator.h"
#include "nn/parallel.h"

namespace sluice::nn {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

template <typename T>
class GeluFunction : public torch::autograd::Function<GeluFunction<T>> {
 public:
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& input) {
    const at::Tensor x = input.contiguous();
    ctx->save_for_backward({x});
    OwnOperator call("sluice::gelu", {x});
    at::Tensor y = at::empty_like(x);
    const T* from = values_of<T>(x);
    T* to = mutable_values_of<T>(y);
    parallel_for(0, x.numel(), kPieceValues, [&](std::int64_t begin, std::int64_t end) {
      kernels::best().gelu.of<T>().forward(from + begin, end - begin, to + begin);
    });
    call.made({y});
    return y;
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const at::Tensor x = ctx->get_saved_variables()[0], grad = grads[0].contiguous();
    OwnOperator call("sluice::gelu_backward", {grad, x});
    at::Tensor grad_x = at::empty_like(x);
    const T *from = values_of<T>(x), *upper = values_of<T>(grad);
    T* to = mutable_values_of<T>(grad_x);
    parallel_for(0, x.numel(), kPieceValues, [&](std::int64_t begin, std::int64_t end) {
      kernels::best().gelu.of<T>().backward(from + begin, upper + begin, end - begin, to + begin);
    });
    call.made({grad_x});
    return {grad_x};
  }
};

class BiasGeluOnGpu : public torch::autograd::Function<BiasGeluOnGpu> {
 public:
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& bias, GeluForm form) {
    ctx->save_for_backward({x, bias});
    ctx->saved_data["form"] = static_cast<std::int64_t>(form);
    OwnOperator call("sluice::bias_gelu", {x, bias});
    const at::Tensor y = gpu::bias_gelu(x, bias, form);
    call.made({y});
    return y;
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const variable_list saved = ctx->get_saved_variables();
    const at::Tensor &x = saved[0], &bias = saved[1];
    const auto form = static_cast<GeluForm>(ctx->saved_data["form"].toInt());
    OwnOperator call("sluice::bias_gelu_backward", {grads[0], x, bias});
    const auto gradients = gpu::bias_gelu_backward(grads[0], x, bias, form, ctx->needs_input_grad(1));
    call.made({gradients.x, gradients.bias});
    return {gradients.x, gradients.bias, {}};
  }
};

}  // namespace

at::Tensor gelu(const at::Tensor& x) {
  if (!suits_kernels(x)) return at::gelu(x);
  return with_type_of(x, [&](auto number) { return GeluFunction<decltype(number)>::apply(x); });
}

at::Tensor linear_gelu(const at::Tensor& x, const Linear& linear, const ForwardContext& context, GeluForm form) {
  if (linear.has_bias() && linear.bias().scalar_type() == at::kFloat && gpu::suits(x)) {
    return BiasGeluOnGpu::apply(linear.without_bias(x, context), linear.bias(), form);
  }
  const at::Tensor y = linear(x, context);
  return form == GeluForm::kTanh ? nn::gelu_tanh(y) : nn::gelu(y);
}

}  // namespace sluice::nn
