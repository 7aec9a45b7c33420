#include "nn/layer_norm.h"

#include <ATen/Parallel.h>
#include <torch/csrc/autograd/custom_function.h>

#include "nn/kernels/kernels.h"

namespace sluice::nn {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr std::int64_t kPieceValues = std::int64_t{1} << 14;

bool is_fast(const at::Tensor& x) { return x.device().is_cpu() && x.scalar_type() == at::kFloat; }

class GeluFunction : public torch::autograd::Function<GeluFunction> {
 public:
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& input) {
    const at::Tensor x = input.contiguous();
    ctx->save_for_backward({x});
    at::Tensor y = at::empty_like(x);
    const float* from = x.const_data_ptr<float>();
    float* to = y.mutable_data_ptr<float>();
    at::parallel_for(0, x.numel(), kPieceValues, [&](std::int64_t begin, std::int64_t end) {
      kernels::best().gelu.forward(from + begin, end - begin, to + begin);
    });
    return y;
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const at::Tensor x = ctx->get_saved_variables()[0], grad = grads[0].contiguous();
    at::Tensor grad_x = at::empty_like(x);
    const float *from = x.const_data_ptr<float>(), *upper = grad.const_data_ptr<float>();
    float* to = grad_x.mutable_data_ptr<float>();
    at::parallel_for(0, x.numel(), kPieceValues, [&](std::int64_t begin, std::int64_t end) {
      kernels::best().gelu.backward(from + begin, upper + begin, end - begin, to + begin);
    });
    return {grad_x};
  }
};

class LayerNormFunction : public torch::autograd::Function<LayerNormFunction> {
 public:
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& input, const at::Tensor& weight,
                            const at::Tensor& bias, double epsilon) {
    const at::Tensor x = input.contiguous();
    const std::int64_t width = x.size(-1), rows = x.numel() / width;
    at::Tensor y = at::empty_like(x), mean = at::empty({rows}, x.options()), inverse = at::empty({rows}, x.options());
    const float *from = x.const_data_ptr<float>(), *w = weight.const_data_ptr<float>(),
                *b = bias.const_data_ptr<float>();
    float *to = y.mutable_data_ptr<float>(), *means = mean.mutable_data_ptr<float>(),
          *inverses = inverse.mutable_data_ptr<float>();
    at::parallel_for(0, rows, std::max<std::int64_t>(kPieceValues / width, 1), [&](std::int64_t begin, std::int64_t end) {
      kernels::best().layer_norm.forward(from + begin * width, w, b, end - begin, width, static_cast<float>(epsilon),
                                         to + begin * width, means + begin, inverses + begin);
    });
    ctx->save_for_backward({x, weight, mean, inverse});
    return y;
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const variable_list saved = ctx->get_saved_variables();
    const at::Tensor &x = saved[0], &weight = saved[1], &mean = saved[2], &inverse = saved[3];
    const at::Tensor grad = grads[0].contiguous();
    const std::int64_t width = x.size(-1), rows = x.numel() / width;
    const std::int64_t piece = std::max<std::int64_t>(kPieceValues / width, 1), pieces = (rows + piece - 1) / piece;
    at::Tensor grad_x = at::empty_like(x), partial = at::zeros({2, pieces, width}, x.options());
    const float *xs = x.const_data_ptr<float>(), *gs = grad.const_data_ptr<float>(),
                *w = weight.const_data_ptr<float>(), *means = mean.const_data_ptr<float>(),
                *inverses = inverse.const_data_ptr<float>();
    float *to = grad_x.mutable_data_ptr<float>(), *sums = partial.mutable_data_ptr<float>();
    at::parallel_for(0, pieces, 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        const std::int64_t row = i * piece, count = std::min(piece, rows - row);
        kernels::best().layer_norm.backward(xs + row * width, gs + row * width, w, means + row, inverses + row, count,
                                            width, to + row * width, sums + i * width, sums + (pieces + i) * width);
      }
    });
    const at::Tensor total = partial.sum(1);
    return {grad_x, total[0], total[1], {}};
  }
};

}  // namespace

at::Tensor gelu(const at::Tensor& x) { return is_fast(x) ? GeluFunction::apply(x) : at::gelu(x); }

at::Tensor layer_norm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, double epsilon) {
  if (!is_fast(x) || weight.scalar_type() != at::kFloat || x.numel() == 0) {
    return at::layer_norm(x, {x.size(-1)}, weight, bias, epsilon);
  }
  return LayerNormFunction::apply(x, weight, bias, epsilon);
}

}  // namespace sluice::nn
