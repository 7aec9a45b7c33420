// Every instruction set of this CPU gives the results of the baseline, also for odd sizes.
#include "nn/kernels/kernels.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <bit>
#include <functional>
#include <string>

#include "core/concat.h"
#include "nn/compare.h"
#include "nn/not_finite.h"

namespace sluice::nn {
namespace {

class KernelsTest : public testing::TestWithParam<const kernels::Table*> {
 protected:
  void SetUp() override {
    if (!kernels::supported(*GetParam())) GTEST_SKIP() << "this CPU does not run " << GetParam()->instruction_set;
    at::manual_seed(8);
  }
  const kernels::Table& table() const { return *GetParam(); }
};

float* data(const at::Tensor& t) { return t.mutable_data_ptr<float>(); }
template <typename T>
T* values(const at::Tensor& t) {
  return static_cast<T*>(t.mutable_data_ptr());
}
kernels::Bf16* bf16(const at::Tensor& t) { return values<kernels::Bf16>(t); }

TEST_P(KernelsTest, GeluHandlesTheLastPartialVector) {
  for (const std::int64_t count : {1, 15, 16, 17, 100}) {
    const at::Tensor x = at::randn({count}) * 3, grad = at::randn({count}), y = at::full({count + 1}, 7.0),
                     slope = at::full({count + 1}, 7.0);
    table().gelu.in_float.forward(data(x), count, data(y));
    table().gelu.in_float.backward(data(x), data(grad), count, data(slope));
    const at::Tensor exact = x.to(at::kDouble);
    EXPECT_LE(relative_error(y.narrow(0, 0, count), at::gelu(exact)), 1e-6);
    EXPECT_LE(relative_error(slope.narrow(0, 0, count), at::gelu_backward(grad.to(at::kDouble), exact)), 1e-6);
    EXPECT_EQ(y[count].item<float>(), 7.0F);
    EXPECT_EQ(slope[count].item<float>(), 7.0F);
  }
}

TEST_P(KernelsTest, TransposeIsExact) {
  for (const auto& [rows, columns] : {std::array{1, 1}, std::array{16, 32}, std::array{37, 50}}) {
    const at::Tensor in = at::randn({rows, columns + 3}), out = at::full({columns, rows + 2}, 7.0);
    table().matrix.transpose(data(in), rows, columns, columns + 3, data(out), rows + 2);
    EXPECT_TRUE(at::equal(out.narrow(1, 0, rows), in.narrow(1, 0, columns).t()));
    EXPECT_TRUE(at::equal(out.narrow(1, rows, 2), at::full({columns, 2}, 7.0)));
  }
}

TEST_P(KernelsTest, AttentionMatchesTheBaseline) {
  const kernels::AttentionShape shape{
      .queries = 13, .keys = 21, .head_width = 32, .q_stride = 40, .kv_stride = 70, .out_stride = 32, .scale = 0.2F};
  const at::Tensor q = at::randn({13, 40}), k = at::randn({21, 70}), v = at::randn({21, 70}),
                   grad = at::randn({13, 32});
  const auto run = [&](const kernels::AttentionKernels<float>& kernel) {
    const std::int64_t padded = kernel.padded(21);
    const at::Tensor p = at::empty({13, padded}), out = at::empty({13, 32}),
                     scratch = at::empty({kernel.scratch_floats(13, 21, 32)});
    const at::Tensor gq = at::zeros_like(q), gk = at::zeros_like(k), gv = at::zeros_like(v);
    kernel.forward(shape, data(q), data(k), data(v), data(p), data(out), data(scratch));
    kernel.backward(shape, data(q), data(k), data(v), data(p), data(grad), data(gq), data(gk), data(gv), data(scratch));
    EXPECT_LE(relative_error(p.sum(1), at::ones({13})), 1e-6);
    return at::cat({out.flatten(), gq.flatten(), gk.flatten(), gv.flatten()});
  };
  EXPECT_LE(relative_error(run(table().attention.in_float), run(kernels::baseline().attention.in_float)), 2e-6);
}

// Halves between two bfloat16, infinities, NaN and the smallest numbers.
TEST_P(KernelsTest, Bf16IsRoundedAsATenDoes) {
  const auto number = [](std::uint32_t bits) { return std::bit_cast<float>(bits); };
  std::vector<float> numbers;
  for (std::uint32_t upper = 0; upper < 1 << 16; upper += 7) {
    for (const std::uint32_t lower : {0x0000U, 0x0001U, 0x7fffU, 0x8000U, 0x8001U, 0xffffU})
      numbers.push_back(number(upper << 16 | lower));
  }
  for (const std::uint32_t bits : {0x7f800000U, 0xff800000U, 0x7fc00000U, 0x7f800001U, 0xffffffffU, 0x7f7fffffU})
    numbers.push_back(number(bits));
  numbers.resize(numbers.size() / kernels::kChannelStep * kernels::kChannelStep);
  const auto channels = static_cast<std::int64_t>(numbers.size());
  const at::Tensor offset = at::from_blob(numbers.data(), {channels}), zero = at::zeros({channels}),
                   x = at::zeros({channels}, at::kBFloat16), y = at::empty_like(x);
  table().batch_norm.in_bf16.apply(bf16(x), nullptr, data(zero), data(offset), 1, channels, false, bf16(y));
  const at::Tensor expected = (zero + offset).to(at::kBFloat16);
  EXPECT_TRUE(at::equal(y.isnan(), expected.isnan()));
  EXPECT_TRUE(at::equal(y.nan_to_num(0, 1e38, -1e38), expected.nan_to_num(0, 1e38, -1e38)));
}

TEST_P(KernelsTest, Bf16KernelsRoundWhatTheFloatOnesGive) {
  constexpr std::int64_t kRows = 5, kChannels = 112;
  const auto random = [] { return at::randn({kRows, kChannels}, at::kBFloat16); };
  const at::Tensor x = random(), residual = random(), grad = random(), scale = at::randn({kChannels}),
                   offset = at::randn({kChannels}), y = at::empty_like(x), grad_x = at::empty_like(x),
                   grad_residual = at::empty_like(x), sums = at::empty({4, kChannels});
  const at::Tensor wide_x = x.to(at::kFloat), wide_residual = residual.to(at::kFloat), wide_grad = grad.to(at::kFloat),
                   wide_y = at::empty_like(wide_x), wide_grad_x = at::empty_like(wide_x),
                   wide_grad_residual = at::empty_like(wide_x), wide_sums = at::empty({4, kChannels});
  const auto row = [](const at::Tensor& t, std::int64_t i) { return data(t) + i * kChannels; };
  const auto& ours = table().batch_norm.in_bf16;
  const auto& wide = table().batch_norm.in_float;
  ours.apply(bf16(x), bf16(residual), data(scale), data(offset), kRows, kChannels, true, bf16(y));
  wide.apply(data(wide_x), data(wide_residual), data(scale), data(offset), kRows, kChannels, true, data(wide_y));
  EXPECT_TRUE(at::equal(y, wide_y.to(at::kBFloat16)));
  ours.statistics(bf16(x), data(offset), kRows, kChannels, row(sums, 0), row(sums, 1));
  wide.statistics(data(wide_x), data(offset), kRows, kChannels, row(wide_sums, 0), row(wide_sums, 1));
  ours.gradient_sums(bf16(x), bf16(y), bf16(grad), data(offset), kRows, kChannels, row(sums, 2), row(sums, 3));
  wide.gradient_sums(data(wide_x), data(wide_y), data(wide_grad), data(offset), kRows, kChannels, row(wide_sums, 2),
                     row(wide_sums, 3));
  EXPECT_TRUE(at::equal(sums, wide_sums));
  ours.gradient(bf16(x), bf16(y), bf16(grad), data(offset), data(scale), data(offset), data(scale), kRows, kChannels,
                bf16(grad_x), bf16(grad_residual));
  wide.gradient(data(wide_x), data(wide_y), data(wide_grad), data(offset), data(scale), data(offset), data(scale),
                kRows, kChannels, data(wide_grad_x), data(wide_grad_residual));
  EXPECT_TRUE(at::equal(grad_x, wide_grad_x.to(at::kBFloat16)));
  EXPECT_TRUE(at::equal(grad_residual, wide_grad_residual.to(at::kBFloat16)));

  constexpr std::int64_t kOdd = kRows * kChannels - 3;
  table().gelu.in_bf16.forward(bf16(x), kOdd, bf16(y));
  table().gelu.in_float.forward(data(wide_x), kOdd, data(wide_y));
  EXPECT_TRUE(at::equal(y.flatten().narrow(0, 0, kOdd), wide_y.to(at::kBFloat16).flatten().narrow(0, 0, kOdd)));
  table().gelu.in_bf16.backward(bf16(x), bf16(grad), kOdd, bf16(y));
  table().gelu.in_float.backward(data(wide_x), data(wide_grad), kOdd, data(wide_y));
  EXPECT_TRUE(at::equal(y.flatten().narrow(0, 0, kOdd), wide_y.to(at::kBFloat16).flatten().narrow(0, 0, kOdd)));
}

TEST_P(KernelsTest, Bf16AttentionIsNearTheExactOne) {
  const kernels::AttentionShape shape{
      .queries = 13, .keys = 21, .head_width = 32, .q_stride = 40, .kv_stride = 70, .out_stride = 32, .scale = 0.2F};
  const auto random = [](std::int64_t rows, std::int64_t columns) { return at::randn({rows, columns}, at::kBFloat16); };
  const at::Tensor q = random(13, 40), k = random(21, 70), v = random(21, 70), grad = random(13, 32);
  const auto& kernel = table().attention.in_bf16;
  const at::Tensor p = random(13, kernel.padded(21)), out = at::empty_like(grad),
                   scratch = at::empty({kernel.scratch_floats(13, 21, 32)});
  const at::Tensor gq = at::zeros_like(q), gk = at::zeros_like(k), gv = at::zeros_like(v);
  kernel.forward(shape, bf16(q), bf16(k), bf16(v), bf16(p), bf16(out), data(scratch));
  kernel.backward(shape, bf16(q), bf16(k), bf16(v), bf16(p), bf16(grad), bf16(gq), bf16(gk), bf16(gv), data(scratch));
  const auto exact = [](const at::Tensor& t) { return t.narrow(1, 0, 32).to(at::kDouble).detach().requires_grad_(); };
  const at::Tensor dq = exact(q), dk = exact(k), dv = exact(v);
  const at::Tensor expected = at::mm(at::softmax(at::mm(dq, dk.t()) * 0.2, -1), dv);
  expected.backward(grad.to(at::kDouble));
  constexpr double kRounding = 1.0 / 256;
  EXPECT_LE(relative_error(out, expected), kRounding);
  EXPECT_LE(relative_error(gq.narrow(1, 0, 32), dq.grad()), kRounding);
  EXPECT_LE(relative_error(gk.narrow(1, 0, 32), dk.grad()), kRounding);
  EXPECT_LE(relative_error(gv.narrow(1, 0, 32), dv.grad()), kRounding);
  EXPECT_EQ(gk.narrow(1, 32, 38).abs().max().item<float>(), 0) << "beyond the head";
}

// One convolution of small integers, composed of the steps, with a block that begins amid the tiles. F(2x2) is exact,
// except for rounding to bfloat16.
template <typename T>
void expect_convolution(const kernels::WinogradKernels<T>& kernel, std::int64_t tiles, at::MemoryFormat layout,
                        double tolerance) {
  using Operand = kernels::Operand<T>;
  constexpr auto kType = sizeof(T) == sizeof(float) ? at::kFloat : at::kBFloat16;
  constexpr std::int64_t kIn = 48, kOut = 80, kHeight = 5, kWidth = 6;
  const at::Tensor x = at::randint(-3, 4, {2, kHeight, kWidth, kIn}, kType),
                   w = at::randint(-3, 4, {kOut, kIn, 3, 3}, at::kFloat).contiguous(layout),
                   grad = at::randint(-3, 4, {2, kHeight, kWidth, kOut}, kType);
  const kernels::WinogradMap in{kHeight, kWidth, kIn}, out{kHeight, kWidth, kOut};
  const auto planes = [&](std::int64_t rows, std::int64_t columns) {
    return at::full({kernel.planes * kernels::winograd_plane(rows, columns)}, 7.0F);
  };
  const at::Tensor y = at::zeros({2, kHeight, kWidth, kOut}, kType),
                   grad_x = at::zeros({2, kHeight, kWidth, kIn}, kType), grad_w = at::zeros_like(w),
                   u = planes(kIn, kOut), back = planes(kOut, kIn), grad_u = planes(kOut, kIn);
  kernel.weights({kIn, kOut, w.stride(1), w.stride(0), w.stride(3)}, data(w), 0, kIn, values<Operand>(u));
  const kernels::WinogradWeights by_output{kOut, kIn, w.stride(0), w.stride(1), w.stride(3)};
  kernels::WinogradWeights rotated = by_output;
  rotated.rotated = true;
  kernel.weights(rotated, data(w), 0, 30, values<Operand>(back));
  kernel.weights(rotated, data(w), 30, kOut, values<Operand>(back));
  const std::int64_t cut = tiles - 2;
  for (const std::int64_t first : {std::int64_t{0}, cut}) {
    const std::int64_t count = first == 0 ? cut : 2 * tiles - cut;
    const kernels::WinogradBlock block{first, count, 0, count};
    const at::Tensor v = planes(count, kIn), panels = planes(count, kIn), m = planes(count, kOut),
                     z = planes(count, kOut), of_grad = planes(count, kOut), of_x = planes(count, kIn);
    kernel.input(in, block, values<T>(x), values<Operand>(v));
    kernel.products(count, kIn, kOut, values<Operand>(v), values<Operand>(u), data(m));
    kernel.output(out, block, data(m), nullptr, values<T>(y));
    kernel.input(out, block, values<T>(grad), values<Operand>(of_grad));
    kernel.products(count, kOut, kIn, values<Operand>(of_grad), values<Operand>(back), data(of_x));
    kernel.output(in, block, data(of_x), nullptr, values<T>(grad_x));
    kernel.input_in_panels(in, block, values<T>(x), values<Operand>(panels));
    kernel.output_gradient(out, block, values<T>(grad), values<Operand>(z));
    for (std::int64_t piece = 0; piece < kernel.planes * kernel.panels(kIn); ++piece) {
      kernel.weight_products(by_output, count, values<Operand>(z), values<Operand>(panels), piece, first > 0,
                             data(grad_u));
    }
  }
  kernel.weight_gradient(by_output, data(grad_u), 0, kOut, data(grad_w));
  const auto exact = [](const at::Tensor& t) { return t.permute({0, 3, 1, 2}).to(at::kDouble); };
  const auto [expected_x, expected_w, unused_bias] =
      at::convolution_backward(exact(grad), exact(x), w.to(at::kDouble), at::OptionalIntArrayRef(), {1, 1}, {1, 1},
                               {1, 1}, false, {0, 0}, 1, {true, true, false});
  const auto rounded = [](const at::Tensor& t) { return t.to(kType).to(at::kDouble); };
  EXPECT_LE(relative_error(exact(y), rounded(at::conv2d(exact(x), w.to(at::kDouble), {}, 1, 1))), tolerance);
  EXPECT_LE(relative_error(exact(grad_x), rounded(expected_x)), tolerance);
  EXPECT_LE(relative_error(grad_w, expected_w), tolerance);
}

TEST_P(KernelsTest, WinogradStepsMakeAConvolution) {
  for (const auto layout : {at::MemoryFormat::Contiguous, at::MemoryFormat::ChannelsLast}) {
    expect_convolution(table().winograd_2x2.in_float, 9, layout, 0);
    expect_convolution(table().winograd_4x4.in_float, 4, layout, 2e-6);
    expect_convolution(table().winograd_2x2.in_bf16, 9, layout, 0);
    expect_convolution(table().winograd_4x4.in_bf16, 4, layout, 0.015);
  }
}

// Runs both on `inputs` with a value that is not finite in each of them, and compares the tensors that come out.
void expect_like(const std::function<Tensors(const Tensors&)>& ours,
                 const std::function<Tensors(const Tensors&)>& reference, const Tensors& inputs) {
  for (std::size_t target = 0; target < inputs.size(); ++target) {
    for (const double value : not_finite_values()) {
      for (const int position : {0, 1, 2}) {
        Tensors changed = inputs;
        changed[target] = with_value_at(inputs[target], position, value);
        const Tensors a = ours(changed), b = reference(changed);
        for (std::size_t i = 0; i < a.size(); ++i) {
          expect_same_not_finite(a[i], b[i], MaySpread::kNowhere,
                                 concat(value, " in input ", target, ", place ", position, ": answer ", i));
        }
      }
    }
  }
}

TEST_P(KernelsTest, BatchNormKeepsNaNAndInfinities) {
  constexpr std::int64_t kRows = 3, kChannels = 112;  // groups of every size
  const auto& kernel = table().batch_norm.in_float;
  const at::Tensor x = at::randn({kRows, kChannels}), residual = at::randn({kRows, kChannels}),
                   scale = at::randn({kChannels}), offset = at::randn({kChannels});
  for (const bool relu : {false, true}) {
    expect_like(
        [&](const Tensors& t) {
          const at::Tensor y = at::empty_like(t[0]);
          kernel.apply(data(t[0]), data(t[1]), data(t[2]), data(t[3]), kRows, kChannels, relu, data(y));
          return Tensors{y};
        },
        [&](const Tensors& t) {
          const at::Tensor y = t[0] * t[2] + t[3] + t[1];
          return Tensors{relu ? at::relu(y) : y};
        },
        {x, residual, scale, offset});
  }
  const at::Tensor y = at::relu(at::randn({kRows, kChannels})), grad = at::randn({kRows, kChannels});
  const auto gated = [](const Tensors& t) { return at::threshold_backward(t[2], t[1], 0); };
  expect_like(
      [&](const Tensors& t) {
        const at::Tensor sum = at::empty({kChannels}), dot = at::empty({kChannels});
        kernel.gradient_sums(data(t[0]), data(t[1]), data(t[2]), data(t[3]), kRows, kChannels, data(sum), data(dot));
        return Tensors{sum, dot};
      },
      [&](const Tensors& t) {
        const at::Tensor g = gated(t);
        return Tensors{g.sum(0), (g * (t[0] - t[3])).sum(0)};
      },
      {x, y, grad, offset});
  expect_like(
      [&](const Tensors& t) {
        const at::Tensor grad_x = at::empty_like(x), grad_residual = at::empty_like(x);
        kernel.gradient(data(t[0]), data(t[1]), data(t[2]), data(t[3]), data(t[4]), data(t[5]), data(t[6]), kRows,
                        kChannels, data(grad_x), data(grad_residual));
        return Tensors{grad_x, grad_residual};
      },
      [&](const Tensors& t) {
        const at::Tensor g = gated(t);
        return Tensors{t[4] * g + (t[5] * (t[0] - t[3]) + t[6]), g};
      },
      {x, y, grad, offset, scale, at::randn({kChannels}), at::randn({kChannels})});
}

TEST_P(KernelsTest, GeluKeepsNaNAndInfinities) {
  expect_like(
      [&](const Tensors& t) {
        const at::Tensor y = at::empty_like(t[0]), slope = at::empty_like(t[0]);
        table().gelu.in_float.forward(data(t[0]), 37, data(y));
        table().gelu.in_float.backward(data(t[0]), data(t[1]), 37, data(slope));
        return Tensors{y, slope};
      },
      [](const Tensors& t) {
        return Tensors{at::gelu(t[0]), at::gelu_backward(t[1], t[0])};
      },
      {at::randn({37}), at::randn({37})});
}

TEST_P(KernelsTest, AttentionKeepsNaNAndInfinities) {
  constexpr std::int64_t kQueries = 5, kKeys = 21, kWidth = 16;
  const kernels::AttentionShape shape{.queries = kQueries,
                                      .keys = kKeys,
                                      .head_width = kWidth,
                                      .q_stride = kWidth,
                                      .kv_stride = kWidth,
                                      .out_stride = kWidth,
                                      .scale = 0.25F};
  const auto& kernel = table().attention.in_float;
  expect_like(
      [&](const Tensors& t) {
        const at::Tensor p = at::empty({kQueries, kernel.padded(kKeys)}), out = at::empty({kQueries, kWidth}),
                         scratch = at::empty({kernel.scratch_floats(kQueries, kKeys, kWidth)});
        const at::Tensor q = at::empty_like(t[0]), k = at::empty_like(t[1]), v = at::empty_like(t[2]);
        kernel.forward(shape, data(t[0]), data(t[1]), data(t[2]), data(p), data(out), data(scratch));
        kernel.backward(shape, data(t[0]), data(t[1]), data(t[2]), data(p), data(t[3]), data(q), data(k), data(v),
                        data(scratch));
        return Tensors{out, q, k, v};
      },
      [](const Tensors& t) {
        const at::Tensor p = at::softmax(at::mm(t[0], t[1].t()) * 0.25, -1), d = at::mm(t[3], t[2].t());
        const at::Tensor slope = p * (d - (p * d).sum(1, /*keepdim=*/true)) * 0.25;
        return Tensors{at::mm(p, t[2]), at::mm(slope, t[1]), at::mm(slope.t(), t[0]), at::mm(p.t(), t[3])};
      },
      {at::randn({kQueries, kWidth}), at::randn({kKeys, kWidth}), at::randn({kKeys, kWidth}),
       at::randn({kQueries, kWidth})});
}

INSTANTIATE_TEST_SUITE_P(Tables, KernelsTest,
                         testing::Values(&kernels::baseline(), &kernels::avx2(), &kernels::avx512(),
                                         &kernels::avx512_bf16()),
                         [](const auto& info) { return std::string(info.param->instruction_set); });

TEST(Kernels, TheBestTableRunsHere) { EXPECT_TRUE(kernels::supported(kernels::best())); }

}  // namespace
}  // namespace sluice::nn
