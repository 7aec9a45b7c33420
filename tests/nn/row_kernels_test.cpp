// Kernels of rows and of long attention in every instruction set of this CPU, for odd sizes, compared with float64.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <type_traits>

#include "nn/compare.h"
#include "nn/kernels/kernels.h"

namespace sluice::nn::row_kernels {
namespace {

constexpr double kBf16Rounding = 1.0 / 256;

class RowKernels : public testing::TestWithParam<const kernels::Table*> {
 protected:
  void SetUp() override {
    if (!kernels::supported(*GetParam())) GTEST_SKIP() << "this CPU does not run " << GetParam()->instruction_set;
    at::manual_seed(31);
  }
  const kernels::Table& table() const { return *GetParam(); }
};

template <typename T>
constexpr at::ScalarType kType = std::is_same_v<T, float> ? at::kFloat : at::kBFloat16;
template <typename T>
constexpr double kTolerance = std::is_same_v<T, float> ? 2e-6 : kBf16Rounding;
template <typename T>
T* values(const at::Tensor& t) {
  return static_cast<T*>(t.mutable_data_ptr());
}
float* floats(const at::Tensor& t) { return t.mutable_data_ptr<float>(); }
at::Tensor exact(const at::Tensor& t) { return t.to(at::kDouble).detach(); }

// [rows, width], with a row behind that must keep its sevens.
template <typename T>
at::Tensor guarded(std::int64_t rows, std::int64_t width) {
  return at::full({rows + 1, width}, 7, kType<T>);
}
at::Tensor without_guard(const at::Tensor& t) {
  EXPECT_TRUE(t[t.size(0) - 1].eq(7).all().item<bool>()) << "wrote beyond the end";
  return t.narrow(0, 0, t.size(0) - 1);
}

template <typename In, typename Out>
void expect_rms_norm(const kernels::RmsNormKernels<In, Out>& kernel) {
  for (const std::int64_t width : {1, 15, 16, 17, 100}) {
    const at::Tensor x = at::randn({3, width}, kType<In>), weight = at::randn({width}),
                     grad = at::randn({3, width}, kType<Out>), y = guarded<Out>(3, width),
                     grad_x = guarded<In>(3, width), inverse = at::zeros({3}), grad_weight = at::ones({width});
    kernel.forward(values<In>(x), floats(weight), 0.25F, 3, width, values<Out>(y), floats(inverse));
    kernel.backward(values<In>(x), values<Out>(grad), floats(weight), floats(inverse), 3, width, values<In>(grad_x),
                    floats(grad_weight));
    const at::Tensor dx = exact(x).requires_grad_(), dw = exact(weight).requires_grad_();
    const at::Tensor expected = dx / (dx.pow(2).mean(1, true) + 0.25).sqrt() * dw;
    expected.backward(exact(grad));
    EXPECT_LE(relative_error(without_guard(y), expected), 2 * kTolerance<Out>) << width;
    EXPECT_LE(relative_error(without_guard(grad_x), dx.grad()), 2 * kTolerance<In>) << width;
    EXPECT_LE(relative_error(grad_weight - 1, dw.grad()), 2e-6) << width;
  }
}

TEST_P(RowKernels, RmsNormIsTheFormula) {
  expect_rms_norm(table().rms_norm);
  expect_rms_norm(table().rms_norm_to_bf16);
  expect_rms_norm(table().rms_norm_of_bf16);
}

template <typename T>
void expect_swiglu(const kernels::SwigluKernels<T>& kernel) {
  for (const std::int64_t width : {1, 15, 16, 17, 100}) {
    const at::Tensor gated = at::randn({3, 2 * width}, kType<T>) * 3, grad = at::randn({3, width}, kType<T>),
                     y = guarded<T>(3, width), grad_gated = guarded<T>(3, 2 * width);
    kernel.forward(values<T>(gated), 3, width, values<T>(y));
    kernel.backward(values<T>(gated), values<T>(grad), 3, width, values<T>(grad_gated));
    const at::Tensor leaf = exact(gated).requires_grad_();
    const auto parts = leaf.chunk(2, 1);
    const at::Tensor expected = parts[0] * at::sigmoid(parts[0]) * parts[1];
    expected.backward(exact(grad));
    EXPECT_LE(relative_error(without_guard(y), expected), kTolerance<T>) << width;
    EXPECT_LE(relative_error(without_guard(grad_gated), leaf.grad()), kTolerance<T>) << width;
  }
}

TEST_P(RowKernels, SwigluIsTheFormula) {
  expect_swiglu(table().swiglu.in_float);
  expect_swiglu(table().swiglu.in_bf16);
}

template <typename T>
void expect_rotation(const kernels::RotaryKernels<T>& kernel) {
  for (const std::int64_t half : {1, 8, 16, 19}) {
    const at::Tensor x = at::randn({3, 2 * half}, kType<T>), angle = at::randn({half}), y = guarded<T>(3, 2 * half),
                     back = guarded<T>(3, 2 * half), cosine = angle.cos(), sine = angle.sin();
    kernel.rotate(values<T>(x), floats(cosine), floats(sine), 1, 3, half, values<T>(y));
    const auto parts = exact(x).chunk(2, 1);
    const at::Tensor expected = at::cat({parts[0] * cosine - parts[1] * sine, parts[1] * cosine + parts[0] * sine}, 1);
    EXPECT_LE(relative_error(without_guard(y), expected), kTolerance<T>) << half;
    kernel.rotate(values<T>(y), floats(cosine), floats(sine), -1, 3, half, values<T>(back));
    EXPECT_LE(relative_error(without_guard(back), x), 2 * kTolerance<T>) << half;
  }
}

TEST_P(RowKernels, RotatesPairsThereAndBack) {
  expect_rotation(table().rotary.in_float);
  expect_rotation(table().rotary.in_bf16);
}

template <typename T>
void expect_cross_entropy(const kernels::CrossEntropyKernels<T>& kernel) {
  for (const std::int64_t classes : {1, 15, 16, 17, 1000}) {
    const at::Tensor x = at::randn({classes}, kType<T>) * 5 - 40, grad = guarded<T>(1, classes);
    const kernels::RowSums sums = kernel.sums(values<T>(x), classes);
    EXPECT_EQ(sums.largest, x.max().item<float>());
    EXPECT_NEAR(sums.exponentials / (exact(x) - sums.largest).exp().sum().item<double>(), 1, 1e-6) << classes;
    EXPECT_NEAR(sums.sum / exact(x).sum().item<double>(), 1, 1e-6) << classes;
    const auto log_sum = exact(x).logsumexp(0).item<float>();
    kernel.gradient(values<T>(x), classes, log_sum, 0.5F, 0.01F, values<T>(grad));
    EXPECT_LE(relative_error(without_guard(grad)[0], 0.5 * ((exact(x) - log_sum).exp() - 0.01)), kTolerance<T>);
  }
}

TEST_P(RowKernels, CrossEntropySumsIgnoreWhatIsBehindTheRow) {
  expect_cross_entropy(table().cross_entropy.in_float);
  expect_cross_entropy(table().cross_entropy.in_bf16);
}

// Two query heads share a key head; strides are wider than the heads.
template <typename T>
void expect_long_attention(const kernels::LongAttentionKernels<T>& kernel, std::int64_t queries, std::int64_t keys,
                           bool causal) {
  constexpr std::int64_t kWidth = 32;
  const kernels::AttentionShape shape{.queries = queries,
                                      .keys = keys,
                                      .head_width = kWidth,
                                      .q_stride = 80,
                                      .kv_stride = 40,
                                      .out_stride = 64,
                                      .scale = 0.2F,
                                      .query_heads = 2,
                                      .causal = causal};
  const at::Tensor q = at::randn({queries, 80}, kType<T>), k = at::randn({keys, 40}, kType<T>),
                   v = at::randn({keys, 40}, kType<T>), grad = at::randn({queries, 64}, kType<T>);
  const at::Tensor out = guarded<T>(queries, 64), gq = guarded<T>(queries, 80), gk = guarded<T>(keys, 40),
                   gv = guarded<T>(keys, 40),
                   scratch =
                       at::full({kernel.scratch_floats(keys, kWidth) + 1}, std::numeric_limits<float>::quiet_NaN());
  scratch[scratch.numel() - 1] = 7;
  kernel.forward(shape, values<T>(q), values<T>(k), values<T>(v), values<T>(out), floats(scratch));
  kernel.backward(shape, values<T>(q), values<T>(k), values<T>(v), values<T>(grad), values<T>(gq), values<T>(gk),
                  values<T>(gv), floats(scratch));
  EXPECT_EQ(scratch[scratch.numel() - 1].item<float>(), 7) << "wrote beyond the scratch memory";
  const at::Tensor dq = exact(q).requires_grad_(), dk = exact(k).requires_grad_(), dv = exact(v).requires_grad_();
  std::vector<at::Tensor> heads;
  for (int h = 0; h < 2; ++h) {
    at::Tensor scores = at::mm(dq.narrow(1, h * kWidth, kWidth), dk.narrow(1, 0, kWidth).t()) * 0.2;
    if (causal) scores = scores.masked_fill(at::ones_like(scores).triu(1).to(at::kBool), -1e300);
    heads.push_back(at::mm(at::softmax(scores, 1), dv.narrow(1, 0, kWidth)));
  }
  const at::Tensor expected = at::cat(heads, 1);
  expected.backward(exact(grad));
  const double tolerance = 2 * kTolerance<T>;
  EXPECT_LE(relative_error(without_guard(out), expected), tolerance);
  EXPECT_LE(relative_error(without_guard(gq).narrow(1, 0, 64), dq.grad().narrow(1, 0, 64)), tolerance);
  EXPECT_LE(relative_error(without_guard(gk).narrow(1, 0, 32), dk.grad().narrow(1, 0, 32)), tolerance);
  EXPECT_LE(relative_error(without_guard(gv).narrow(1, 0, 32), dv.grad().narrow(1, 0, 32)), tolerance);
  EXPECT_TRUE(gk.narrow(1, 32, 8).eq(7).all().item<bool>()) << "wrote beyond the head";
}

TEST_P(RowKernels, LongAttentionIsTheFormula) {
  for (const bool causal : {false, true}) {
    for (const std::int64_t positions : {1, 16, 48, 49, 130}) {
      SCOPED_TRACE(testing::Message() << positions << (causal ? ", causal" : ""));
      expect_long_attention(table().long_attention.in_float, positions, positions, causal);
      expect_long_attention(table().long_attention.in_bf16, positions, positions, causal);
    }
  }
  expect_long_attention(table().long_attention.in_float, 50, 70, false);
}

INSTANTIATE_TEST_SUITE_P(Tables, RowKernels,
                         testing::Values(&kernels::baseline(), &kernels::avx2(), &kernels::avx512(),
                                         &kernels::avx512_bf16()),
                         [](const auto& info) { return std::string(info.param->instruction_set); });

}  // namespace
}  // namespace sluice::nn::row_kernels
