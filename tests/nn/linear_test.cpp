#include "nn/linear.h"

#include <gtest/gtest.h>

#include "nn/compare.h"
#include "nn/gemm.h"
#include "nn/weight_queue.h"

namespace sluice::nn {
namespace {

class LinearTest : public testing::TestWithParam<at::ScalarType> {
 protected:
  void SetUp() override { at::manual_seed(1); }
  at::Tensor random(at::IntArrayRef sizes) const { return at::randn(sizes, GetParam()); }
};

TEST_P(LinearTest, EqualsAutogradOnTinyAndLargeShapes) {
  // The second shape is beyond the size from which float32 takes oneDNN, once with in < out and once with in > out.
  for (const auto& [rows, in, out] : {std::array{3, 5, 7}, std::array{320, 96, 288}, std::array{320, 288, 96}}) {
    expect_equal_gradients([](const Tensors& t) { return linear(t[0], {t[1]}, {t[2]}, ForwardContext{}); },
                           [](const Tensors& t) { return at::linear(t[0], t[1], t[2]); },
                           {random({rows, in}), random({out, in}), random({out})}, tolerance_of(GetParam()));
  }
}

// oneDNN's slow kernel for matrices with gaps rounds otherwise.
TEST(Gemm, MatricesWithGapsRunTheKernelsOfDenseOnes) {
  const at::Tensor class_tokens = at::randn({64, 3, 512}).select(1, 0), part = at::randn({512, 600}).narrow(1, 0, 512),
                   grad = at::randn({64, 512});
  EXPECT_TRUE(
      at::equal(linear_weight_gradient(grad, class_tokens), linear_weight_gradient(grad, class_tokens.contiguous())));
  EXPECT_TRUE(at::equal(linear_forward(grad, part, {}), linear_forward(grad, part.contiguous(), {})));
  EXPECT_TRUE(at::equal(linear_input_gradient(grad, part), linear_input_gradient(grad, part.contiguous())));
}

TEST_P(LinearTest, PackedEqualsSeparateProducts) {
  expect_equal_gradients(
      [](const Tensors& t) {
        return linear(t[0], {t[1], t[2]}, {t[3], t[4]}, ForwardContext{});
      },
      [](const Tensors& t) {
        return at::cat({at::linear(t[0], t[1], t[3]), at::linear(t[0], t[2], t[4])}, -1);
      },
      {random({2, 3, 8}), random({4, 8}), random({6, 8}), random({4}), random({6})}, tolerance_of(GetParam()));
}

TEST_P(LinearTest, TakesAConvolutionWeightAsAMatrix) {
  expect_equal_gradients([](const Tensors& t) { return linear(t[0], {t[1]}, {}, ForwardContext{}); },
                         [](const Tensors& t) { return at::linear(t[0], t[1].flatten(1)); },
                         {random({5, 12}), random({4, 3, 2, 2})}, tolerance_of(GetParam()));
}

TEST_P(LinearTest, QueuedWeightGradientsArriveWhenTheQueueRuns) {
  const at::Tensor x = random({6, 8}).requires_grad_(), w = random({4, 8}).requires_grad_(),
                   b = random({4}).requires_grad_();
  linear(x, {w}, {b}, ForwardContext{}).square().sum().backward();
  const at::Tensor expected_w = w.grad().clone(), expected_b = b.grad().clone(), expected_x = x.grad().clone();
  for (const auto& t : {x, w, b}) t.mutable_grad().reset();

  const at::Tensor bucket = at::zeros_like(w);
  w.mutable_grad() = bucket;
  WeightGradQueue queue;
  linear(x, {w}, {b}, {.weight_queue = &queue}).square().sum().backward();
  EXPECT_TRUE(at::equal(x.grad(), expected_x));
  EXPECT_TRUE(at::equal(bucket, at::zeros_like(bucket)));
  EXPECT_FALSE(b.grad().defined());
  EXPECT_FALSE(queue.empty());
  queue.run();
  EXPECT_TRUE(queue.empty());
  EXPECT_TRUE(at::equal(bucket, expected_w));  // added into the storage that was there
  EXPECT_TRUE(at::equal(b.grad(), expected_b));
}

TEST_P(LinearTest, AWeightOfTheOtherLayoutStaysAsItLies) {
  for (const auto& [rows, in, out] : {std::array{3, 5, 7}, std::array{320, 96, 288}, std::array{320, 288, 96}}) {
    expect_equal_gradients(
        [](const Tensors& t) { return linear(t[0], {t[1]}, {t[2]}, ForwardContext{}, WeightLayout::kInOut); },
        [](const Tensors& t) { return at::matmul(t[0], t[1]) + t[2]; },
        {random({2, rows, in}), random({in, out}), random({out})}, tolerance_of(GetParam()));
  }
}

TEST_P(LinearTest, TheQueuedGradientOfTheOtherLayoutArrivesInTheParametersOwn) {
  const at::Tensor x = random({6, 8}).requires_grad_(), w = random({8, 4}).requires_grad_(),
                   b = random({4}).requires_grad_();
  const auto run = [&](WeightGradQueue* queue) {
    linear(x, {w}, {b}, {.weight_queue = queue}, WeightLayout::kInOut).square().sum().backward();
  };
  run(nullptr);
  const at::Tensor expected_w = w.grad().clone(), expected_b = b.grad().clone(), expected_x = x.grad().clone();
  for (const auto& t : {x, w, b}) t.mutable_grad().reset();

  const at::Tensor flat = at::zeros({100}, GetParam());
  w.mutable_grad() = flat.narrow(0, 16, 32).view({8, 4});
  WeightGradQueue queue;
  run(&queue);
  EXPECT_TRUE(at::equal(x.grad(), expected_x));
  EXPECT_EQ(flat.abs().sum().item<double>(), 0);
  queue.run();
  EXPECT_TRUE(at::equal(flat.narrow(0, 16, 32).view({8, 4}), expected_w));
  EXPECT_EQ(flat.count_nonzero().item<std::int64_t>(), expected_w.count_nonzero().item<std::int64_t>());
  EXPECT_TRUE(at::equal(b.grad(), expected_b));
}

TEST_P(LinearTest, AFrozenWeightGetsNoGradientAndTheInputStillDoes) {
  const at::Tensor x = random({6, 8}).requires_grad_(), w = random({4, 8});
  linear(x, {w}, {}, ForwardContext{}).sum().backward();
  EXPECT_LE(relative_error(x.grad(), w.sum(0).expand({6, 8})), kFloatTolerance);
  EXPECT_FALSE(w.grad().defined());
}

INSTANTIATE_TEST_SUITE_P(Types, LinearTest, testing::Values(at::kFloat, at::kDouble));

}  // namespace
}  // namespace sluice::nn
