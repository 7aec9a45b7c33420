#include "nn/gemm.h"

#include <ATen/core/dispatch/Dispatcher.h>

#include <algorithm>
#include <string_view>

#include "nn/kernels/kernels.h"
#include "nn/own_operator.h"
#include "nn/parallel.h"

namespace sluice::nn {
namespace {

using OneDnnLinear = at::Tensor(const at::Tensor&, const at::Tensor&, const std::optional<at::Tensor>&,
                                std::string_view, c10::List<std::optional<at::Scalar>>,
                                std::optional<std::string_view>);

constexpr std::int64_t kMinimumWork = std::int64_t{1} << 23;  // rows * in * out; below, MKL's lower overhead wins
constexpr std::int64_t kMinimumRows = 256;                    // below, transposing the weight does not pay

const std::optional<c10::TypedOperatorHandle<OneDnnLinear>>& onednn() {
  static const auto kHandle = []() -> std::optional<c10::TypedOperatorHandle<OneDnnLinear>> {
    const auto schema = c10::Dispatcher::singleton().findSchema({"mkldnn::_linear_pointwise", ""});
    if (!schema || !at::globalContext().hasMKLDNN()) return std::nullopt;
    return schema->typed<OneDnnLinear>();
  }();
  return kHandle;
}

bool prefers_onednn(const at::Tensor& a, std::int64_t columns) {
  return a.device().is_cpu() && a.scalar_type() == at::kFloat && a.size(0) * a.size(1) * columns >= kMinimumWork &&
         at::globalContext().userEnabledMkldnn() && onednn().has_value();
}

// With gaps between rows or columns of the right operand, as in the class tokens of a batch, oneDNN takes 600 times as
// long.
at::Tensor without_gaps(const at::Tensor& matrix) {
  if (matrix.is_contiguous() || matrix.t().is_contiguous()) return matrix;
  return matrix.stride(0) == 1 ? matrix.t().contiguous().t() : matrix.contiguous();
}

at::Tensor onednn_product(const at::Tensor& a, const at::Tensor& right, const std::optional<at::Tensor>& bias) {
  return onednn()->call(a, without_gaps(right), bias, "none", c10::List<std::optional<at::Scalar>>(), std::nullopt);
}

at::Tensor transposed(const at::Tensor& matrix) {
  const at::Tensor in = matrix.stride(1) == 1 ? matrix : matrix.contiguous();
  const std::int64_t rows = in.size(0), columns = in.size(1);
  OwnOperator call("sluice::transpose", {in});
  at::Tensor out = at::empty({columns, rows}, in.options());
  const auto* from = in.const_data_ptr<float>();
  auto* to = out.mutable_data_ptr<float>();
  const auto& kernel = kernels::best().matrix;
  parallel_for(0, rows, 64, [&](std::int64_t begin, std::int64_t end) {
    kernel.transpose(from + begin * in.stride(0), end - begin, columns, in.stride(0), to + begin, rows);
  });
  call.made({out});
  return out;
}

// `right` [n, k] with contiguous columns, as oneDNN prefers; copied only if the left operand has enough rows for that.
at::Tensor right_operand(const at::Tensor& right, std::int64_t left_rows) {
  return right.stride(0) == 1 || left_rows < kMinimumRows ? right : transposed(right).t();
}

}  // namespace

at::Tensor linear_forward(const at::Tensor& x, const at::Tensor& weight, const std::optional<at::Tensor>& bias) {
  if (!prefers_onednn(x, weight.size(0))) return at::linear(x, weight, bias);
  return onednn_product(x, right_operand(weight, x.size(0)), bias);
}

at::Tensor linear_input_gradient(const at::Tensor& grad, const at::Tensor& weight) {
  if (!prefers_onednn(grad, weight.size(1))) return at::mm(grad, weight);
  return onednn_product(grad, right_operand(weight.t(), grad.size(0)), std::nullopt);
}

at::Tensor linear_weight_gradient(const at::Tensor& grad, const at::Tensor& x) {
  if (!prefers_onednn(grad, x.size(1))) return at::mm(grad.t(), x);
  // oneDNN is slow if its left operand is transposed, so the narrower matrix is transposed by a copy.
  if (grad.size(1) <= x.size(1)) return onednn_product(transposed(grad), x.t(), std::nullopt);
  return transposed(onednn_product(transposed(x), grad.t(), std::nullopt));
}

}  // namespace sluice::nn
