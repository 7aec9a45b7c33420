// Small integers make every step of F(2x2, 3x3) exact in float32, so results equal the plain convolution bit for bit.
// F(4x4, 3x3) is compared with float64 within a bound.
#include "nn/winograd.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <array>
#include <utility>
#include <vector>

#include "nn/compare.h"
#include "nn/conv.h"
#include "nn/weight_queue.h"

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

  void make_random() {
    for (at::Tensor* t : {&x, &weight, &bias, &grad}) t->copy_(at::randn_like(*t));
  }

  [[nodiscard]] Answers winograd(int tile, TransformedWeights* kept = nullptr) const {
    return {winograd_forward(x, weight, bias, tile, kept), winograd_input_gradient(grad, weight, tile, kept),
            winograd_weight_gradient(grad, x, weight, tile)};
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

constexpr std::array kTiles{2, 4};
// All ways in which a map ends within a tile of 2x2 and 4x4; partly filled blocks.
const std::vector<std::vector<std::int64_t>> kInputs = {{2, 16, 8, 8},   {1, 16, 5, 9},  {3, 48, 7, 7},
                                                        {16, 32, 1, 1},  {5, 80, 2, 3},  {1, 64, 1, 40},
                                                        {9, 16, 14, 13}, {4, 32, 6, 10}, {20, 16, 11, 12}};

class WinogradTest : public testing::Test {
 protected:
  void SetUp() override { at::manual_seed(9); }
  void TearDown() override { at::set_num_threads(before_); }
  int before_ = at::get_num_threads();
};

template <typename Check>
void for_all_shapes(const Check& check) {
  for (const auto& sizes : kInputs) {
    for (const std::int64_t outputs : {16, 64, 112}) {
      for (const auto layout : {at::MemoryFormat::Contiguous, kLast}) {
        SCOPED_TRACE(testing::Message() << at::IntArrayRef(sizes) << " to " << outputs << " channels");
        check(Case(sizes, outputs, layout));
      }
    }
  }
}

void expect_layouts(const Answers& answers, const Case& example) {
  EXPECT_TRUE(answers.y.is_contiguous(kLast));
  EXPECT_TRUE(answers.grad_x.is_contiguous(kLast));
  EXPECT_EQ(answers.grad_weight.strides(), example.weight.strides());
}

TEST_F(WinogradTest, Of2x2IsExactForSmallIntegers) {
  for_all_shapes([](const Case& example) {
    const Answers exact = example.plain(at::kDouble), ours = example.winograd(2);
    expect_same_bits(ours, {exact.y.to(at::kFloat), exact.grad_x.to(at::kFloat), exact.grad_weight.to(at::kFloat)});
    expect_layouts(ours, example);
  });
}

// The largest errors here: 1.1e-6, 1.0e-6 and 1.3e-6.
TEST_F(WinogradTest, Of4x4IsCloseToFloat64) {
  for_all_shapes([](Case example) {
    example.make_random();
    const Answers exact = example.plain(at::kDouble), ours = example.winograd(4);
    EXPECT_LE(relative_error(ours.y, exact.y), 3e-6);
    EXPECT_LE(relative_error(ours.grad_x, exact.grad_x), 3e-6);
    EXPECT_LE(relative_error(ours.grad_weight, exact.grad_weight), 3e-6);
    expect_layouts(ours, example);
  });
}

// Errors against float64 relative to those of oneDNN's plain sum. Measured here:
//   2x2: output and input gradient 0.6 to 0.8, weight gradient (long sums over tiles) 1.5 to 3.5
//   4x4: output and input gradient 1.8 to 2.3, weight gradient 2.9 to 5.6
TEST_F(WinogradTest, RoundsNotMuchMoreThanThePlainSumDoes) {
  for (const auto& [images, channels, side] : {std::array{4, 16, 12}, {4, 256, 12}, {64, 16, 32}, {64, 128, 4}}) {
    Case example({images, channels, side, side}, channels, kLast);
    example.make_random();
    const Answers exact = example.plain(at::kDouble), plain = example.plain(at::kFloat);
    for (const int tile : kTiles) {
      SCOPED_TRACE(testing::Message() << channels << " channels, tiles of " << tile);
      const Answers ours = example.winograd(tile);
      const auto ratio = [&](auto part) {
        return relative_error(ours.*part, exact.*part) / relative_error(plain.*part, exact.*part);
      };
      EXPECT_LE(ratio(&Answers::y), tile == 2 ? 1.5 : 4);
      EXPECT_LE(ratio(&Answers::grad_x), tile == 2 ? 1.5 : 4);
      EXPECT_LE(ratio(&Answers::grad_weight), tile == 2 ? 5 : 10);
    }
  }
}

TEST_F(WinogradTest, GivesTheSameBitsOnAnyNumberOfThreads) {
  Case example({40, 48, 9, 9}, 80, at::MemoryFormat::Contiguous);
  example.make_random();
  for (const int tile : kTiles) {
    at::set_num_threads(1);
    const Answers one = example.winograd(tile);
    for (const int threads : {2, 3}) {
      at::set_num_threads(threads);
      expect_same_bits(example.winograd(tile), one);
    }
  }
}

TEST_F(WinogradTest, AnImageDoesNotDependOnTheOthersInItsBatch) {
  Case example({11, 32, 10, 10}, 48, at::MemoryFormat::Contiguous);
  example.make_random();
  for (const int tile : kTiles) {
    const Answers all = example.winograd(tile);
    for (const std::int64_t first : {0, 3, 10}) {
      EXPECT_TRUE(
          at::equal(winograd_forward(example.x.narrow(0, first, 1), example.weight, example.bias, tile, nullptr),
                    all.y.narrow(0, first, 1)));
      EXPECT_TRUE(at::equal(winograd_input_gradient(example.grad.narrow(0, first, 1), example.weight, tile, nullptr),
                            all.grad_x.narrow(0, first, 1)));
    }
  }
}

TEST_F(WinogradTest, KeepsTransformedWeightsUntilTheyAreCleared) {
  const Case example({4, 32, 8, 8}, 48, kLast);
  const std::array anew{example.winograd(2), example.winograd(4)};
  TransformedWeights kept;
  expect_same_bits(example.winograd(2, &kept), anew[0]);
  expect_same_bits(example.winograd(4, &kept), anew[1]);
  EXPECT_GE(kept.bytes(), 2 * example.weight.nbytes() * (16 + 36) / 9);
  example.weight.zero_();  // what is kept is used
  expect_same_bits(example.winograd(2, &kept), anew[0]);
  expect_same_bits(example.winograd(4, &kept), anew[1]);
  kept.clear();
  EXPECT_EQ(kept.bytes(), 0);
  for (const int tile : kTiles)
    EXPECT_TRUE(at::equal(example.winograd(tile, &kept).grad_x, at::zeros_like(anew[0].grad_x)));
}

TEST_F(WinogradTest, IsUsedOnlyWhereItIsWritten) {
  const at::Tensor x = at::zeros({8, 32, 8, 8}), weight = at::zeros({16, 32, 3, 3});
  const auto tile = [](const at::Tensor& input, const at::Tensor& w, std::int64_t stride, std::int64_t padding) {
    return winograd_tile(input, w, stride, padding, Winograd::k4x4);
  };
  EXPECT_EQ(tile(x, weight, 1, 1), 4);
  EXPECT_EQ(winograd_tile(x, weight, 1, 1, Winograd::k2x2), 2);
  EXPECT_EQ(winograd_tile(x, weight, 1, 1, Winograd::kNone), 0);
  EXPECT_EQ(tile(x, weight, 2, 1), 0);
  EXPECT_EQ(tile(x, weight, 1, 0), 0);
  EXPECT_EQ(tile(x, at::zeros({16, 32, 1, 1}), 1, 1), 0);
  EXPECT_EQ(tile(x.to(at::kDouble), weight.to(at::kDouble), 1, 1), 0);
  EXPECT_EQ(tile(x.narrow(1, 0, 3), weight.narrow(1, 0, 3), 1, 1), 0);
  EXPECT_EQ(tile(x, weight.narrow(0, 0, 10), 1, 1), 0);
  EXPECT_EQ(tile(x.narrow(0, 0, 0), weight, 1, 1), 0);
}

// By work: (tiles + 32 for the transformed weight) of 36 products against 16.
TEST_F(WinogradTest, TakesTilesOf4x4IfTheyAreLessWork) {
  struct Row {
    std::int64_t images, height, width;
    int tile;
  };
  const std::vector<Row> table = {
      {64, 32, 32, 4}, {64, 16, 16, 4}, {64, 8, 8, 4},  {64, 4, 4, 4},  // whole tiles
      {4, 32, 32, 4},  {4, 16, 16, 4},  {4, 8, 8, 2},   {4, 4, 4, 2},   // few of them: the transformed weight decides
      {16, 4, 4, 2},   {24, 4, 4, 4},   {16, 7, 7, 4},  {64, 3, 3, 4},  {64, 14, 14, 4},  // tiles overhang
      {64, 1, 1, 2},   {64, 2, 2, 2},   {64, 5, 5, 2},  {64, 6, 6, 2},  {64, 9, 9, 4},    // too far
      {64, 1, 32, 2},  {64, 2, 32, 2},  {64, 3, 32, 4}, {64, 6, 32, 4}, {15, 2, 2, 0},   {3, 4, 4, 0}, {0, 32, 32, 0}};
  for (const Row& row : table) {
    SCOPED_TRACE(testing::Message() << row.images << " of " << row.height << "x" << row.width);
    EXPECT_EQ(winograd_tile(row.images, row.height, row.width, Winograd::k4x4), row.tile);
    EXPECT_EQ(winograd_tile(row.images, row.height, row.width, Winograd::k2x2), row.tile == 0 ? 0 : 2);
    EXPECT_EQ(winograd_tile(row.images, row.height, row.width, Winograd::kNone), 0);
  }
}

TEST_F(WinogradTest, IsWhatAConvolutionLayerUses) {
  const Case example({8, 32, 8, 8}, 16, kLast);
  for (const auto& [allowed, tile] : {std::pair{Winograd::k2x2, 2}, {Winograd::k4x4, 4}}) {
    at::Tensor x = example.x.clone().requires_grad_(), weight = example.weight.clone().requires_grad_(),
               bias = example.bias.clone().requires_grad_();
    const at::Tensor y = conv2d(x, weight, bias, 1, 1, nullptr, nullptr, allowed);
    (y * example.grad).sum().backward();
    expect_same_bits({y, x.grad(), weight.grad()}, example.winograd(tile));
    EXPECT_TRUE(at::equal(bias.grad(), example.grad.sum({0, 2, 3})));
  }
}

TEST_F(WinogradTest, IsNotUsedIfItIsNotAllowed) {
  Case example({8, 32, 8, 8}, 16, kLast);
  example.make_random();
  at::Tensor x = example.x.clone().requires_grad_(), weight = example.weight.clone().requires_grad_();
  const at::Tensor y = conv2d(x, weight, example.bias, 1, 1, nullptr, nullptr, Winograd::kNone);
  (y * example.grad).sum().backward();
  expect_same_bits({y, x.grad(), weight.grad()}, example.plain(at::kFloat));
}

TEST_F(WinogradTest, DefersItsWeightGradient) {
  Case example({8, 32, 8, 8}, 16, kLast);
  example.make_random();
  at::Tensor x = example.x.clone().requires_grad_(), weight = example.weight.clone().requires_grad_();
  WeightGradQueue queue;
  const at::Tensor y = conv2d(x, weight, example.bias, 1, 1, &queue, nullptr, Winograd::k4x4);
  (y * example.grad).sum().backward();
  EXPECT_FALSE(weight.grad().defined());
  queue.run();
  expect_same_bits({y, x.grad(), weight.grad()}, example.winograd(4));
}

}  // namespace
}  // namespace sluice::nn
