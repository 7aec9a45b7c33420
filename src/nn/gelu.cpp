#include "nn/gelu.h"

#include <torch/csrc/autograd/custom_function.h>

#include "nn/kernels/kernels.h"
#include "nn/own_operator.h"
#include "nn/parallel.h"

namespace sluice::nn {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

bool is_float_on_cpu(const at::Tensor& x) { return x.device().is_cpu() && x.scalar_type() == at::kFloat; }

class GeluFunction : public torch::autograd::Function<GeluFunction> {
 public:
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& input) {
    const at::Tensor x = input.contiguous();
    ctx->save_for_backward({x});
    OwnOperator call("sluice::gelu", {x});
    at::Tensor y = at::empty_like(x);
    const auto* from = x.const_data_ptr<float>();
    auto* to = y.mutable_data_ptr<float>();
    parallel_for(0, x.numel(), kPieceValues, [&](std::int64_t begin, std::int64_t end) {
      kernels::best().gelu.forward(from + begin, end - begin, to + begin);
    });
    call.made({y});
    return y;
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const at::Tensor x = ctx->get_saved_variables()[0], grad = grads[0].contiguous();
    OwnOperator call("sluice::gelu_backward", {grad, x});
    at::Tensor grad_x = at::empty_like(x);
    const auto *from = x.const_data_ptr<float>(), *upper = grad.const_data_ptr<float>();
    auto* to = grad_x.mutable_data_ptr<float>();
    parallel_for(0, x.numel(), kPieceValues, [&](std::int64_t begin, std::int64_t end) {
      kernels::best().gelu.backward(from + begin, upper + begin, end - begin, to + begin);
    });
    call.made({grad_x});
    return {grad_x};
  }
};

}  // namespace

at::Tensor gelu(const at::Tensor& x) { return is_float_on_cpu(x) ? GeluFunction::apply(x) : at::gelu(x); }

}  // namespace sluice::nn
