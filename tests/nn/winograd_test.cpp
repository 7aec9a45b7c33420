// Small integers make every step of F(2x2, 3x3) exact in float32 (its only factors are 1/2 and 1/4), so an answer must
// equal the plain convolution's bit for bit. Random values measure the rounding.
#include "nn/winograd.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <vector>

#include "nn/compare.h"
#include "nn/conv.h"

namespace sluice::nn {
namespace {

constexpr auto kLast = at::MemoryFormat::ChannelsLast;

struct Answers {
  at::Tensor y, grad_x, grad_weight;
};

struct Case {
  at::Tensor x, weight, bias, grad;

  Case(at::IntArrayRef x_sizes, std::int64_t outputs, at::MemoryFormat weight_layout)
      : x(integers(x_sizes).contiguous(kLast)),
        weight(integers({outputs, x.size(1), 3, 3}).contiguous(weight_layout)),
        bias(integers({outputs})),
        grad(integers({x.size(0), outputs, x.size(2), x.size(3)}).contiguous(kLast)) {}

  static at::Tensor integers(at::IntArrayRef sizes) { return at::randint(-3, 4, sizes, at::kFloat); }

  [[nodiscard]] Answers winograd() const {
    return {winograd_forward(x, weight, bias, nullptr), winograd_input_gradient(grad, weight, nullptr),
            winograd_weight_gradient(grad, x, weight)};
  }
  [[nodiscard]] Answers plain(at::ScalarType type) const {
    const auto [grad_x, grad_weight, unused] =
        at::convolution_backward(grad.to(type), x.to(type), weight.to(type), at::OptionalIntArrayRef(), {1, 1}, {1, 1},
                                 {1, 1}, false, {0, 0}, 1, {true, true, false});
    return {at::conv2d(x.to(type), weight.to(type), bias.to(type), 1, 1), grad_x, grad_weight};
  }
};

void expect_same_bits(const Answers& a, const Answers& b) {
  EXPECT_TRUE(at::equal(a.y, b.y)) << "output";
  EXPECT_TRUE(at::equal(a.grad_x, b.grad_x)) << "input gradient";
  EXPECT_TRUE(at::equal(a.grad_weight, b.grad_weight)) << "weight gradient";
}

class Winograd : public testing::Test {
 protected:
  void SetUp() override { at::manual_seed(9); }
  void TearDown() override { at::set_num_threads(before_); }
  int before_ = at::get_num_threads();
};

TEST_F(Winograd, IsExactForSmallIntegers) {
  const std::vector<std::vector<std::int64_t>> inputs = {{2, 16, 8, 8}, {1, 16, 5, 9},  {3, 48, 7, 7},  {16, 32, 1, 1},
                                                         {5, 80, 2, 3}, {1, 64, 1, 40}, {9, 16, 14, 13}};
  for (const auto& sizes : inputs) {
    for (const std::int64_t outputs : {16, 64, 112}) {
      for (const auto layout : {at::MemoryFormat::Contiguous, kLast}) {
        SCOPED_TRACE(testing::Message() << at::IntArrayRef(sizes) << " to " << outputs << " channels");
        const Case example(sizes, outputs, layout);
        const Answers exact = example.plain(at::kDouble), ours = example.winograd();
        expect_same_bits(ours, {exact.y.to(at::kFloat), exact.grad_x.to(at::kFloat), exact.grad_weight.to(at::kFloat)});
        EXPECT_TRUE(ours.y.is_contiguous(kLast));
        EXPECT_TRUE(ours.grad_x.is_contiguous(kLast));
        EXPECT_EQ(ours.grad_weight.strides(), example.weight.strides());
      }
    }
  }
}

// Errors against float64 relative to those of oneDNN's plain sum. Measured here: output and input gradient 0.6 to 0.8,
// weight gradient (long sums over tiles) 1.5 to 3.5.
TEST_F(Winograd, RoundsAboutAsThePlainSumDoes) {
  for (const auto& [images, channels, side] : {std::array{4, 16, 12}, {4, 256, 12}, {64, 16, 32}, {64, 128, 4}}) {
    Case example({images, channels, side, side}, channels, kLast);
    for (at::Tensor* t : {&example.x, &example.weight, &example.bias, &example.grad}) t->copy_(at::randn_like(*t));
    const Answers exact = example.plain(at::kDouble), plain = example.plain(at::kFloat), ours = example.winograd();
    const auto ratio = [&](auto part) {
      return relative_error(ours.*part, exact.*part) / relative_error(plain.*part, exact.*part);
    };
    EXPECT_LE(ratio(&Answers::y), 1.5) << channels << " channels";
    EXPECT_LE(ratio(&Answers::grad_x), 1.5) << channels << " channels";
    EXPECT_LE(ratio(&Answers::grad_weight), 5) << channels << " channels";
  }
}

TEST_F(Winograd, GivesTheSameBitsOnAnyNumberOfThreads) {
  Case example({40, 48, 9, 9}, 80, at::MemoryFormat::Contiguous);
  for (at::Tensor* t : {&example.x, &example.weight, &example.grad}) t->copy_(at::randn_like(*t));
  at::set_num_threads(1);
  const Answers one = example.winograd();
  for (const int threads : {2, 3}) {
    at::set_num_threads(threads);
    expect_same_bits(example.winograd(), one);
  }
}

TEST_F(Winograd, AnImageDoesNotDependOnTheOthersInItsBatch) {
  Case example({11, 32, 10, 10}, 48, at::MemoryFormat::Contiguous);
  for (at::Tensor* t : {&example.x, &example.weight, &example.grad}) t->copy_(at::randn_like(*t));
  const Answers all = example.winograd();
  for (const std::int64_t first : {0, 3, 10}) {
    EXPECT_TRUE(at::equal(winograd_forward(example.x.narrow(0, first, 1), example.weight, example.bias, nullptr),
                          all.y.narrow(0, first, 1)));
    EXPECT_TRUE(at::equal(winograd_input_gradient(example.grad.narrow(0, first, 1), example.weight, nullptr),
                          all.grad_x.narrow(0, first, 1)));
  }
}

TEST_F(Winograd, KeepsTransformedWeightsUntilTheyAreCleared) {
  const Case example({4, 32, 8, 8}, 48, kLast);
  const Answers anew = example.winograd();
  TransformedWeights kept;
  const auto answers = [&] {
    return Answers{winograd_forward(example.x, example.weight, example.bias, &kept),
                   winograd_input_gradient(example.grad, example.weight, &kept), anew.grad_weight};
  };
  expect_same_bits(answers(), anew);
  EXPECT_GE(kept.bytes(), 2 * example.weight.nbytes() * 16 / 9);
  example.weight.zero_();  // what is kept is used
  expect_same_bits(answers(), anew);
  kept.clear();
  EXPECT_EQ(kept.bytes(), 0);
  EXPECT_TRUE(at::equal(answers().grad_x, at::zeros_like(anew.grad_x)));
}

TEST_F(Winograd, PaysOnlyWhereItIsWritten) {
  const at::Tensor x = at::zeros({8, 32, 8, 8}), weight = at::zeros({16, 32, 3, 3});
  EXPECT_TRUE(winograd_pays(x, weight, 1, 1));
  EXPECT_FALSE(winograd_pays(x, weight, 2, 1));
  EXPECT_FALSE(winograd_pays(x, weight, 1, 0));
  EXPECT_FALSE(winograd_pays(x, at::zeros({16, 32, 1, 1}), 1, 1));
  EXPECT_FALSE(winograd_pays(x.to(at::kDouble), weight.to(at::kDouble), 1, 1));
  EXPECT_FALSE(winograd_pays(x.narrow(1, 0, 3), weight.narrow(1, 0, 3), 1, 1));
  EXPECT_FALSE(winograd_pays(x, weight.narrow(0, 0, 10), 1, 1));
  EXPECT_FALSE(winograd_pays(x.narrow(0, 0, 0), weight, 1, 1));
}

TEST_F(Winograd, IsWhatAConvolutionLayerUses) {
  const Case example({4, 32, 8, 8}, 16, kLast);
  at::Tensor x = example.x.clone().requires_grad_(), weight = example.weight.clone().requires_grad_(),
             bias = example.bias.clone().requires_grad_();
  const at::Tensor y = conv2d(x, weight, bias, 1, 1, nullptr, nullptr);
  (y * example.grad).sum().backward();
  expect_same_bits({y, x.grad(), weight.grad()}, example.winograd());
  EXPECT_TRUE(at::equal(bias.grad(), example.grad.sum({0, 2, 3})));
}

}  // namespace
}  // namespace sluice::nn
