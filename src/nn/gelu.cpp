#include "nn/gelu.h"

#include <torch/csrc/autograd/custom_function.h>

#include "nn/kernel_data.h"
#include "nn/own_operator.h"
#include "nn/parallel.h"

namespace sluice::nn {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// T: of kernels.h.
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

}  // namespace

at::Tensor gelu(const at::Tensor& x) {
  if (!suits_kernels(x)) return at::gelu(x);
  return with_type_of(x, [&](auto number) { return GeluFunction<decltype(number)>::apply(x); });
}

}  // namespace sluice::nn
