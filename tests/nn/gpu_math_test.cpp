// The functions of the GPU kernels (src/nn/cuda/*.h), compiled for the CPU and compared with the CPU kernels and with
// ATen in float64. Their distribution over threads: cuda_test.cpp.
#include <gtest/gtest.h>

#include <bit>
#include <limits>
#include <numeric>
#include <vector>

#include "core/rng.h"
#include "nn/compare.h"
#include "nn/cuda/gelu_math.h"
#include "nn/cuda/operations.h"
#include "nn/cuda/row_kernels.h"
#include "nn/dropout.h"
#include "nn/gelu.h"

namespace sluice::nn {
namespace {

// The lanes of several warps, one after the other, like LaneGroup of grid.cuh.
struct GroupOnCpu {
  int warps = 1;

  [[nodiscard]] static gpu::Lane lane() { return {0, 1}; }  // writes for all

  template <int kRun, typename Terms>
  [[nodiscard]] float sum(std::int64_t columns, const Terms& terms) const {
    float total = 0;
    for (int warp = 0; warp < warps; ++warp) {
      std::vector<float> lanes;
      for (int i = 0; i < gpu::kWarp; ++i)
        lanes.push_back(gpu::lane_sum<kRun>({warp * gpu::kWarp + i, warps * gpu::kWarp}, columns, terms));
      for (int offset = gpu::kWarp / 2; offset > 0; offset /= 2) {
        const std::vector<float> before = lanes;
        for (int i = 0; i < gpu::kWarp; ++i) lanes[i] = before[i] + before[i ^ offset];
      }
      EXPECT_TRUE(std::equal(lanes.begin() + 1, lanes.end(), lanes.begin(), [](float a, float b) {
        return std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b);
      }));
      total = warps == 1 ? lanes[0] : total + lanes[0];
    }
    return total;
  }
};

TEST(GpuMath, KeyedNumbersAreThoseOfTheCore) {
  std::uint64_t bits = 1;
  for (int i = 0; i < 2000; ++i) {
    const std::uint64_t key = bits = splitmix64(bits + 1), high = splitmix64(key), low = splitmix64(high);
    const auto words = philox(key, high, low);
    const gpu::Block block = gpu::philox_block(key, high, low);
    EXPECT_TRUE(std::equal(words.begin(), words.end(), block.words)) << key;
    EXPECT_EQ(gpu::derived_key(key, low), derive_key(key, low));
    EXPECT_EQ(gpu::sample_key({.layer_key = key}, i), derive_key(key, static_cast<std::uint64_t>(i)));
  }
}

template <typename T, int kRun>
at::Tensor dropped(const at::Tensor& x, const at::Tensor& ids, const gpu::MaskNumbers& mask) {
  at::Tensor y = at::empty_like(x);
  const std::int64_t count = x.numel() / x.size(0);
  const gpu::DropoutArguments arguments{.x = x.const_data_ptr(),
                                        .sample_ids = ids.const_data_ptr<std::int64_t>(),
                                        .samples = x.size(0),
                                        .count = count,
                                        .mask = mask,
                                        .y = y.mutable_data_ptr()};
  for (std::int64_t sample = 0; sample < x.size(0); ++sample) {
    const std::uint64_t key = gpu::sample_key(mask, arguments.sample_ids[sample]);
    for (std::int64_t block = 0; block * gpu::kWordsInBlock < count; ++block)
      gpu::dropout_block<T, kRun>(arguments, key, sample, block);
  }
  return y;
}

TEST(GpuMath, MasksAreThoseOfTheCpuBitForBit) {
  at::manual_seed(1);
  const at::Tensor ids = at::tensor(std::vector<std::int64_t>{7, 0, 123'456'789'012, -3}, at::kLong);
  for (const double p : {0.0001, 0.1, 0.5, 0.9999}) {
    const ForwardContext context{.training = true, .seed = 5, .step = 9, .sample_ids = ids};
    const gpu::MaskNumbers mask = mask_numbers(p, "layer", context);
    for (const std::int64_t count : {1, 3, 4, 1000, 4097}) {
      const at::Tensor x = at::randn({4, count}), rounded = x.to(at::kBFloat16);
      const at::Tensor expected = dropout(x, p, "layer", context), of_rounded = dropout(rounded, p, "layer", context);
      EXPECT_TRUE(at::equal((dropped<float, 1>(x, ids, mask)), expected)) << p << ", " << count;
      EXPECT_TRUE(at::equal((dropped<gpu::Bf16, 1>(rounded, ids, mask)), of_rounded)) << p << ", " << count;
      if (count % 4 != 0) continue;
      EXPECT_TRUE(at::equal((dropped<float, 4>(x, ids, mask)), expected)) << p << ", " << count;
      EXPECT_TRUE(at::equal((dropped<gpu::Bf16, 4>(rounded, ids, mask)), of_rounded)) << p << ", " << count;
    }
  }
}

TEST(GpuMath, NumbersAreRoundedAsByAten) {
  constexpr float kMost = std::numeric_limits<float>::max(), kInfinity = std::numeric_limits<float>::infinity();
  std::vector<float> values{0.0F, -0.0F, 1.0F, kMost, -kMost, kInfinity, -kInfinity, 1e-41F};
  std::uint64_t bits = 2;
  for (int i = 0; i < 100'000; ++i) {
    bits = splitmix64(bits);
    values.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(bits)));
    // Half way between two of them.
    values.push_back(std::bit_cast<float>((static_cast<std::uint32_t>(bits >> 32U) & 0xffff0000U) | 0x8000U));
  }
  for (const float value : values) {
    gpu::Bf16 narrow{};
    gpu::narrow(value, narrow);
    const at::BFloat16 expected(value);
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(gpu::widened(narrow)));
    } else {
      EXPECT_EQ(narrow.bits, expected.x) << value;
      EXPECT_EQ(gpu::widened(narrow), static_cast<float>(expected));
    }
  }
}

template <typename Gelu>
void expect_gelu(const char* form) {
  const at::Tensor x =
      at::cat({at::linspace(-13, 13, 20'011, at::kFloat), at::linspace(-0.01, 0.01, 1001, at::kFloat)});
  at::Tensor value = at::empty_like(x), slope = at::empty_like(x);
  for (std::int64_t i = 0; i < x.numel(); ++i) {
    value.mutable_data_ptr<float>()[i] = Gelu::value(x.const_data_ptr<float>()[i]);
    slope.mutable_data_ptr<float>()[i] = Gelu::slope(x.const_data_ptr<float>()[i]);
  }
  const at::Tensor exact = x.to(at::kDouble);
  const at::Tensor exact_slope = at::gelu_backward(at::ones_like(exact), exact, form);
  EXPECT_LE((value - at::gelu(exact, form)).abs().max().item<double>(), 1e-6) << form;
  EXPECT_LE((slope - exact_slope).abs().max().item<double>(), 1e-6) << form;
  for (const float bad : {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
                          std::numeric_limits<float>::quiet_NaN(), 1e30F, -1e30F}) {
    const at::Tensor at_bad = at::full({1}, bad);
    const auto expected = at::gelu(at_bad, form).item<float>();
    const auto expected_slope = at::gelu_backward(at::ones({1}), at_bad, form).item<float>();
    EXPECT_EQ(std::isnan(Gelu::value(bad)), std::isnan(expected)) << form << " of " << bad;
    EXPECT_EQ(std::isnan(Gelu::slope(bad)), std::isnan(expected_slope)) << form << " of " << bad;
    if (!std::isnan(expected)) {
      EXPECT_EQ(Gelu::value(bad), expected) << form << " of " << bad;
    }
    if (!std::isnan(expected_slope)) {
      EXPECT_EQ(Gelu::slope(bad), expected_slope) << form << " of " << bad;
    }
  }
}

TEST(GpuMath, GeluIsThatOfAtenAndOfTheCpuKernels) {
  expect_gelu<gpu::ExactGelu>("none");
  expect_gelu<gpu::TanhGelu>("tanh");
  const at::Tensor x = at::linspace(-13, 13, 20'011, at::kFloat), ours = nn::gelu(x);
  for (std::int64_t i = 0; i < x.numel(); ++i)
    EXPECT_NEAR(gpu::ExactGelu::value(x.const_data_ptr<float>()[i]), ours.const_data_ptr<float>()[i], 3e-6);
}

struct Rows {
  at::Tensor y, mean, inverse, grad_x;
};

template <typename In, typename Out, int kRun>
Rows normalised(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, const at::Tensor& grad,
                double epsilon, int warps) {
  const gpu::Matrix shape{x.size(0), x.size(1)};
  Rows rows{at::empty_like(grad), at::empty({x.size(0)}), at::empty({x.size(0)}), at::empty_like(x)};
  const gpu::LayerNormArguments forward{.x = x.const_data_ptr(),
                                        .weight = weight.const_data_ptr<float>(),
                                        .bias = bias.const_data_ptr<float>(),
                                        .shape = shape,
                                        .epsilon = static_cast<float>(epsilon),
                                        .y = rows.y.mutable_data_ptr(),
                                        .mean = rows.mean.mutable_data_ptr<float>(),
                                        .inverse = rows.inverse.mutable_data_ptr<float>()};
  const gpu::LayerNormBackwardArguments backward{.x = forward.x,
                                                 .grad = grad.const_data_ptr(),
                                                 .weight = forward.weight,
                                                 .mean = forward.mean,
                                                 .inverse = forward.inverse,
                                                 .shape = shape,
                                                 .grad_x = rows.grad_x.mutable_data_ptr(),
                                                 .partial_weight = nullptr,
                                                 .partial_bias = nullptr};
  for (std::int64_t row = 0; row < shape.rows; ++row) {
    gpu::layer_norm_row<In, Out, kRun>(GroupOnCpu{warps}, forward, row);
    gpu::layer_norm_gradient_row<In, Out, kRun>(GroupOnCpu{warps}, backward, row);
  }
  return rows;
}

TEST(GpuMath, LayerNormIsThatOfAtenInFloat64) {
  at::manual_seed(3);
  using Case = std::pair<std::int64_t, double>;
  for (const auto& [columns, mean] : {Case{1, 0}, Case{3, 0}, Case{32, 5}, Case{1000, 0}, Case{1000, 100},
                                      Case{1024, -3}, Case{4096, 1}, Case{4097, 1}}) {
    const at::Tensor x = at::randn({3, columns}) + mean, grad = at::randn({3, columns});
    const at::Tensor weight = at::randn({columns}), bias = at::randn({columns});
    const auto exact = [&](const at::Tensor& t) { return t.to(at::kDouble); };
    for (const double epsilon : {1e-5, 1e-12}) {
      if (columns == 1 && epsilon < 1e-6) continue;  // 1 / sqrt(epsilon) times a rounding error
      const auto [y, means, inverse] = at::native_layer_norm(exact(x), {columns}, exact(weight), exact(bias), epsilon);
      const auto gradients = at::native_layer_norm_backward(exact(grad), exact(x), {columns}, means, inverse,
                                                            exact(weight), exact(bias), {true, false, false});
      const double tolerance = 3e-6 * std::max(1.0, std::abs(mean));
      for (const int warps : {1, 8}) {
        const Rows rows = columns % 4 == 0 ? normalised<float, float, 4>(x, weight, bias, grad, epsilon, warps)
                                           : normalised<float, float, 1>(x, weight, bias, grad, epsilon, warps);
        SCOPED_TRACE(testing::Message() << columns << " columns, mean " << mean << ", " << warps << " warps");
        expect_close(rows.y, y, tolerance, "y");
        expect_close(rows.mean, means.flatten(), tolerance, "mean");
        expect_close(rows.grad_x, std::get<0>(gradients), tolerance, "gradient of x");
      }
    }
  }
}

TEST(GpuMath, LayerNormReadsAndWritesBfloat16) {
  at::manual_seed(4);
  constexpr std::int64_t kColumns = 768;
  const at::Tensor x = at::randn({4, kColumns}).to(at::kBFloat16), grad = at::randn({4, kColumns}).to(at::kBFloat16);
  const at::Tensor weight = at::randn({kColumns}), bias = at::randn({kColumns}), wide = x.to(at::kFloat);
  const Rows of_float = normalised<float, float, 4>(wide, weight, bias, grad.to(at::kFloat), 1e-5, 1);
  const Rows mixed = normalised<float, gpu::Bf16, 4>(wide, weight, bias, grad, 1e-5, 1);
  const Rows both = normalised<gpu::Bf16, gpu::Bf16, 4>(x, weight, bias, grad, 1e-5, 1);
  EXPECT_TRUE(at::equal(mixed.y, of_float.y.to(at::kBFloat16)));
  EXPECT_TRUE(at::equal(both.y, of_float.y.to(at::kBFloat16)));
  EXPECT_TRUE(at::equal(mixed.grad_x, of_float.grad_x));
  EXPECT_TRUE(at::equal(both.grad_x, of_float.grad_x.to(at::kBFloat16)));
}

TEST(GpuMath, LayerNormHidesNoOverflow) {
  const at::Tensor ones = at::ones({64}), zeros = at::zeros({64}), grad = at::ones({1, 64});
  for (const float bad : {1e30F, std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    at::Tensor x = at::zeros({1, 64});
    x[0][5] = bad;
    const Rows rows = normalised<float, float, 4>(x, ones, zeros, grad, 1e-5, 1);
    EXPECT_TRUE(rows.y.isnan().all().item<bool>()) << bad;
    EXPECT_TRUE(rows.grad_x.isnan().all().item<bool>()) << bad;
  }
}

TEST(GpuMath, PiecesHoldEveryRowOnce) {
  for (const std::int64_t rows :
       {std::int64_t{1}, std::int64_t{63}, std::int64_t{64}, std::int64_t{65}, std::int64_t{12'608},
        std::int64_t{131'072}, std::int64_t{131'073}, std::int64_t{1} << 40}) {
    const gpu::Pieces pieces = gpu::pieces_of(rows);
    EXPECT_GE(pieces.rows * pieces.count, rows);
    EXPECT_LT(pieces.rows * (pieces.count - 1), rows) << "the last one is not empty";
    EXPECT_LE(pieces.count, 2048);
  }
}

TEST(GpuMath, TensorsOnCpusAreForOtherKernels) {
  EXPECT_FALSE(gpu::suits(at::zeros({2})));
  EXPECT_FALSE(gpu::suits(at::zeros({2}, at::kBFloat16)));
}

}  // namespace
}  // namespace sluice::nn
