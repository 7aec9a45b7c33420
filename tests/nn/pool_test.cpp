#include "nn/pool.h"

#include <gtest/gtest.h>

#include "nn/compare.h"

namespace sluice::nn {
namespace {

class PoolTest : public testing::TestWithParam<at::ScalarType> {
 protected:
  void SetUp() override { at::manual_seed(4); }
  static at::Tensor random(at::IntArrayRef sizes) {
    return at::randn(sizes, GetParam()).contiguous(at::MemoryFormat::ChannelsLast);
  }
};

// The maxima of shifted copies of the padded image, without a pooling kernel.
at::Tensor maximum_of_shifts(const at::Tensor& x, const PoolShape& shape) {
  const at::Tensor padded = at::constant_pad_nd(x, {shape.padding, shape.padding, shape.padding, shape.padding}, -1e9);
  const auto slide = [&](std::int64_t size) { return (size - shape.kernel) / shape.stride * shape.stride + 1; };
  std::vector<at::Tensor> shifts;
  for (std::int64_t row = 0; row < shape.kernel; ++row) {
    for (std::int64_t column = 0; column < shape.kernel; ++column) {
      shifts.push_back(padded.slice(2, row, row + slide(padded.size(2)), shape.stride)
                           .slice(3, column, column + slide(padded.size(3)), shape.stride));
    }
  }
  return std::get<0>(at::stack(shifts).max(0));
}

TEST_P(PoolTest, MaximumEqualsThatOfShiftedImages) {
  for (const PoolShape& shape :
       {PoolShape{.kernel = 3, .stride = 2, .padding = 1}, PoolShape{.kernel = 2, .stride = 2}}) {
    for (const std::int64_t side : {6, 7}) {
      expect_equal_gradients([&](const Tensors& t) { return max_pool2d(t[0], shape); },
                             [&](const Tensors& t) { return maximum_of_shifts(t[0], shape); },
                             {random({2, 16, side, side})}, tolerance_of(GetParam()));
    }
  }
}

TEST_P(PoolTest, AverageEqualsTheMeansOfItsShares) {
  constexpr std::int64_t kSize = 7;
  const auto means = [](const Tensors& t) {
    std::vector<at::Tensor> values;
    const std::int64_t side = t[0].size(2);
    const auto share = [&](const at::Tensor& x, std::int64_t dim, std::int64_t i) {
      return x.slice(dim, i * side / kSize, ((i + 1) * side + kSize - 1) / kSize);
    };
    for (std::int64_t i = 0; i < kSize * kSize; ++i) {
      values.push_back(share(share(t[0], 2, i / kSize), 3, i % kSize).mean(at::IntArrayRef{2, 3}));
    }
    return at::stack(values, 2).view({t[0].size(0), t[0].size(1), kSize, kSize});
  };
  for (const std::int64_t side : {1, 2, 7, 10, 14}) {
    expect_equal_gradients([](const Tensors& t) { return adaptive_avg_pool2d(t[0], kSize) * 1; }, means,
                           {random({2, 16, side, side})}, tolerance_of(GetParam()));
  }
}

TEST_P(PoolTest, KeepsTheLayoutAndTheInput) {
  const at::Tensor x = random({2, 16, 8, 8}), before = x.clone();
  EXPECT_TRUE(max_pool2d(x, {.kernel = 2, .stride = 2}).is_contiguous(at::MemoryFormat::ChannelsLast));
  EXPECT_TRUE(adaptive_avg_pool2d(x, 7).is_contiguous(at::MemoryFormat::ChannelsLast));
  EXPECT_TRUE(at::equal(x, before));
}

INSTANTIATE_TEST_SUITE_P(Types, PoolTest, testing::Values(at::kFloat, at::kDouble));

}  // namespace
}  // namespace sluice::nn
