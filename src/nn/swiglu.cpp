#include "nn/swiglu.h"

#include <algorithm>
#include <array>

#include <torch/csrc/autograd/custom_function.h>

#include "core/check.h"
#include "nn/kernel_data.h"
#include "nn/own_operator.h"
#include "nn/parallel.h"

namespace sluice::nn {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Calls body(first row, rows) in parallel.
template <typename Body>
void for_gated_rows(const at::Tensor& gated, const Body& body) {
  const std::int64_t width = std::max<std::int64_t>(gated.size(-1), 1);
  parallel_for(0, gated.numel() / width, kPieceValues / width + 1,
               [&](std::int64_t begin, std::int64_t end) { body(begin, end - begin); });
}

template <typename T>
class SwigluFunction : public torch::autograd::Function<SwigluFunction<T>> {
 public:
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& input) {
    const at::Tensor gated = input.contiguous();
    ctx->save_for_backward({gated});
    OwnOperator call("sluice::swiglu", {gated});
    std::vector<std::int64_t> sizes = gated.sizes().vec();
    const std::int64_t width = sizes.back() /= 2;
    at::Tensor y = at::empty(sizes, gated.options());
    const T* from = values_of<T>(gated);
    T* to = mutable_values_of<T>(y);
    for_gated_rows(gated, [&](std::int64_t first, std::int64_t rows) {
      kernels::best().swiglu.of<T>().forward(from + first * 2 * width, rows, width, to + first * width);
    });
    call.made({y});
    return y;
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const at::Tensor gated = ctx->get_saved_variables()[0], grad = grads[0].contiguous();
    OwnOperator call("sluice::swiglu_backward", {grad, gated});
    at::Tensor grad_gated = at::empty_like(gated);
    const std::int64_t width = grad.size(-1);
    const T *from = values_of<T>(gated), *upper = values_of<T>(grad);
    T* to = mutable_values_of<T>(grad_gated);
    for_gated_rows(gated, [&](std::int64_t first, std::int64_t rows) {
      kernels::best().swiglu.of<T>().backward(from + first * 2 * width, upper + first * width, rows, width,
                                              to + first * 2 * width);
    });
    call.made({grad_gated});
    return {grad_gated};
  }
};

}  // namespace

at::Tensor swiglu(const at::Tensor& gated) {
  check(gated.size(-1) % 2 == 0, "as many gates as ups");
  if (!suits_kernels(gated)) {
    const auto parts = gated.chunk(2, -1);
    return at::silu(parts[0]) * parts[1];
  }
  return with_type_of(gated, [&](auto number) { return SwigluFunction<decltype(number)>::apply(gated); });
}

at::Tensor linear_swiglu(const at::Tensor& x, const Linear& gate, const Linear& up, const ForwardContext& context) {
  const std::array layers{&gate, &up};
  return swiglu(linear_packed(x, layers, context));
}

}  // namespace sluice::nn
