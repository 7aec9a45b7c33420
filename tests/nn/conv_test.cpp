#include "nn/conv.h"

#include <gtest/gtest.h>

#include <ATen/Parallel.h>

#include "nn/compare.h"
#include "nn/weight_queue.h"

namespace sluice::nn {
namespace {

class ConvTest : public testing::TestWithParam<at::ScalarType> {
 protected:
  void SetUp() override { at::manual_seed(2); }
  at::Tensor random(at::IntArrayRef sizes) const { return at::randn(sizes, GetParam()); }
};

TEST_P(ConvTest, EqualsAutograd) {
  for (const auto& [kernel, stride, padding] : {std::array{3, 1, 1}, std::array{3, 2, 1}, std::array{1, 2, 0}}) {
    expect_equal_gradients(
        [s = stride, p = padding](const Tensors& t) { return conv2d(t[0], t[1], t[2], s, p, nullptr, nullptr); },
        [s = stride, p = padding](const Tensors& t) {
          return at::conv2d(t[0], t[1], t[2], {s, s}, {p, p});
        },
        {random({2, 3, 8, 8}), random({16, 3, kernel, kernel}), random({16})}, tolerance_of(GetParam()));
  }
}

// oneDNN writes out of bounds here with several threads (conv.cpp).
TEST_P(ConvTest, FewChannelsWithAStrideEqualAutograd) {
  const int threads = at::get_num_threads();
  at::set_num_threads(2);
  expect_equal_gradients([](const Tensors& t) { return conv2d(t[0], t[1], {}, 2, 0, nullptr, nullptr); },
                         [](const Tensors& t) { return at::conv2d(t[0], t[1], {}, 2); },
                         {random({7, 8, 16, 16}), random({8, 8, 1, 1})}, tolerance_of(GetParam()));
  at::set_num_threads(threads);
}

// Depthwise, as ConvNeXt has it, and groups of several channels; 16 channels a group would fit winograd.h.
TEST_P(ConvTest, GroupsEqualAutogradAlsoThroughTheQueue) {
  struct Shape {
    std::int64_t in, out, groups, kernel, stride;
  };
  for (const auto& s : {Shape{24, 24, 24, 7, 1}, Shape{6, 12, 6, 3, 2}, Shape{8, 6, 2, 1, 1}, Shape{32, 32, 2, 3, 1}}) {
    const std::int64_t padding = s.kernel / 2;
    const Tensors inputs{random({3, s.in, 8, 8}), random({s.out, s.in / s.groups, s.kernel, s.kernel}),
                         random({s.out})};
    const auto theirs = [&](const Tensors& t) { return at::conv2d(t[0], t[1], t[2], s.stride, padding, 1, s.groups); };
    const auto ours = [&](const Tensors& t) { return conv2d(t[0], t[1], t[2], s.stride, padding, nullptr, nullptr); };
    expect_equal_gradients(ours, theirs, inputs, tolerance_of(GetParam()));

    Tensors expected, queued;
    for (const at::Tensor& t : inputs) {
      expected.push_back(t.clone().requires_grad_());
      queued.push_back(t.clone().requires_grad_());
    }
    theirs(expected).square().sum().backward();
    WeightGradQueue queue;
    conv2d(queued[0], queued[1], queued[2], s.stride, padding, &queue, nullptr).square().sum().backward();
    EXPECT_FALSE(queued[1].grad().defined());
    queue.run();
    for (std::size_t i = 0; i < queued.size(); ++i)
      EXPECT_LE(relative_error(queued[i].grad(), expected[i].grad()), tolerance_of(GetParam())) << i;
  }
}

TEST_P(ConvTest, AnswersInChannelsLast) {
  const at::Tensor y = conv2d(random({2, 3, 8, 8}), random({16, 3, 3, 3}), {}, 1, 1, nullptr, nullptr);
  EXPECT_TRUE(y.is_contiguous(at::MemoryFormat::ChannelsLast));
}

TEST_P(ConvTest, QueuedWeightGradientsEqualTheDirectOnes) {
  const at::Tensor x = random({2, 4, 6, 6}).requires_grad_(), w = random({8, 4, 3, 3}).requires_grad_(),
                   b = random({8}).requires_grad_();
  conv2d(x, w, b, 1, 1, nullptr, nullptr).square().sum().backward();
  const at::Tensor expected_x = x.grad().clone(), expected_w = w.grad().clone(), expected_b = b.grad().clone();
  for (const auto& t : {x, w, b}) t.mutable_grad().reset();

  WeightGradQueue queue;
  conv2d(x, w, b, 1, 1, &queue, nullptr).square().sum().backward();
  EXPECT_FALSE(w.grad().defined());
  queue.run();
  EXPECT_LE(relative_error(x.grad(), expected_x), tolerance_of(GetParam()));
  EXPECT_LE(relative_error(w.grad(), expected_w), tolerance_of(GetParam()));
  EXPECT_LE(relative_error(b.grad(), expected_b), tolerance_of(GetParam()));
}

INSTANTIATE_TEST_SUITE_P(Types, ConvTest, testing::Values(at::kFloat, at::kDouble));

}  // namespace
}  // namespace sluice::nn
