#include "nn/rms_norm.h"

#include <algorithm>

#include <torch/csrc/autograd/custom_function.h>

#include "nn/kernel_data.h"
#include "nn/own_operator.h"
#include "nn/parallel.h"

namespace sluice::nn {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// The number of partial weight gradients depends on the shape alone, so results do not depend on the threads.
constexpr std::int64_t kRowsInPiece = 32, kMostPieces = 64;

template <typename In, typename Out>
const kernels::RmsNormKernels<In, Out>& rms_norm_kernels() {
  const kernels::Table& table = kernels::best();
  if constexpr (sizeof(In) == 2) {
    return table.rms_norm_of_bf16;
  } else if constexpr (sizeof(Out) == 2) {
    return table.rms_norm_to_bf16;
  } else {
    return table.rms_norm;
  }
}

template <typename In, typename Out>
class RmsNormFunction : public torch::autograd::Function<RmsNormFunction<In, Out>> {
 public:
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& input, const at::Tensor& weight, double epsilon) {
    const at::Tensor x = input.contiguous(), factors = weight.contiguous();
    const std::int64_t width = x.size(-1), rows = width == 0 ? 0 : x.numel() / width;
    OwnOperator call("sluice::rms_norm", {x, weight});
    at::Tensor y = at::empty(x.sizes(), x.options().dtype(sizeof(Out) == 2 ? at::kBFloat16 : at::kFloat));
    at::Tensor inverse = at::empty({rows}, x.options().dtype(at::kFloat));
    const In* from = values_of<In>(x);
    const auto* w = values_of<float>(factors);
    Out* to = mutable_values_of<Out>(y);
    float* inverses = mutable_values_of<float>(inverse);
    parallel_for(0, rows, kPieceValues / std::max<std::int64_t>(width, 1) + 1,
                 [&](std::int64_t begin, std::int64_t end) {
                   rms_norm_kernels<In, Out>().forward(from + begin * width, w, static_cast<float>(epsilon),
                                                       end - begin, width, to + begin * width, inverses + begin);
                 });
    call.made({y});
    ctx->save_for_backward({x, factors, inverse});
    return y;
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const variable_list saved = ctx->get_saved_variables();
    const at::Tensor &x = saved[0], &weight = saved[1], &inverse = saved[2], grad = grads[0].contiguous();
    const std::int64_t rows = inverse.numel(), width = x.size(-1);
    OwnOperator call("sluice::rms_norm_backward", {grad, x, weight});
    const std::int64_t pieces = std::clamp<std::int64_t>(rows / kRowsInPiece, 1, kMostPieces);
    at::Tensor grad_x = at::empty_like(x), partial = at::zeros({pieces, width}, weight.options());
    const In* from = values_of<In>(x);
    const Out* upper = values_of<Out>(grad);
    const auto *w = values_of<float>(weight), *inverses = values_of<float>(inverse);
    In* to = mutable_values_of<In>(grad_x);
    auto* sums = mutable_values_of<float>(partial);
    parallel_for(0, pieces, 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t piece = begin; piece < end; ++piece) {
        const std::int64_t first = rows * piece / pieces, last = rows * (piece + 1) / pieces;
        rms_norm_kernels<In, Out>().backward(from + first * width, upper + first * width, w, inverses + first,
                                             last - first, width, to + first * width, sums + piece * width);
      }
    });
    const at::Tensor grad_weight = partial.sum(0);
    call.made({grad_x, grad_weight});
    return {grad_x, grad_weight, {}};
  }
};

at::Tensor rms_norm_by_formula(const at::Tensor& x, const at::Tensor& weight, double epsilon, at::ScalarType type) {
  if (x.is_cuda() && type != at::kBFloat16) return at::rms_norm(in_float(x), {x.size(-1)}, weight, epsilon);
  if (x.is_cuda()) return (at::rms_norm(in_float(x), {x.size(-1)}, {}, epsilon).to(type) * weight).to(type);
  const at::Tensor wide = in_float(x);
  return (wide * (wide.square().mean(-1, /*keepdim=*/true) + epsilon).rsqrt()).to(type).mul(weight).to(type);
}

}  // namespace

at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double epsilon, at::ScalarType type) {
  const bool gives_float = type == at::kFloat || type == at::kBFloat16;
  if (!suits_kernels(x) || weight.scalar_type() != at::kFloat || !gives_float) {
    return rms_norm_by_formula(x, weight, epsilon, type);
  }
  if (type == at::kFloat) return RmsNormFunction<float, float>::apply(in_float(x), weight, epsilon);
  if (is_bf16(x)) return RmsNormFunction<kernels::Bf16, kernels::Bf16>::apply(x, weight, epsilon);
  return RmsNormFunction<float, kernels::Bf16>::apply(x, weight, epsilon);
}

}  // namespace sluice::nn
