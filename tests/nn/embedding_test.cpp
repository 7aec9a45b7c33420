#include "nn/embedding.h"

#include <gtest/gtest.h>

#include "nn/compare.h"
#include "nn/weight_queue.h"

namespace sluice::nn {
namespace {

class EmbeddingTest : public testing::TestWithParam<at::ScalarType> {
 protected:
  void SetUp() override { at::manual_seed(9); }
  at::Tensor random(at::IntArrayRef sizes) const { return at::randn(sizes, GetParam()); }
  at::Tensor tokens_ = at::tensor({3, 0, 3, 1, 3, 1}, at::kLong).view({2, 3});
};

TEST_P(EmbeddingTest, EqualsAutogradWithTokensThatRepeat) {
  expect_equal_gradients([&](const Tensors& t) { return embedding(tokens_, t[0], nullptr); },
                         [&](const Tensors& t) { return at::embedding(t[0], tokens_); }, {random({5, 7})},
                         tolerance_of(GetParam()));
}

TEST_P(EmbeddingTest, QueuedGradientsArriveWhenTheQueueRunsInTheStorageThatWasThere) {
  const at::Tensor table = random({5, 7}).requires_grad_();
  embedding(tokens_, table, nullptr).square().sum().backward();
  const at::Tensor expected = table.grad().clone();
  const at::Tensor bucket = at::zeros_like(table);
  table.mutable_grad() = bucket;
  WeightGradQueue queue;
  embedding(tokens_, table, &queue).square().sum().backward();
  EXPECT_TRUE(at::equal(bucket, at::zeros_like(bucket)));
  EXPECT_FALSE(queue.empty());
  queue.run();
  EXPECT_TRUE(at::equal(bucket, expected));
}

TEST_P(EmbeddingTest, AFrozenTableLeavesNothingToDo) {
  const at::Tensor table = random({5, 7});
  WeightGradQueue queue;
  const at::Tensor y = embedding(tokens_, table, &queue);
  EXPECT_FALSE(y.requires_grad());
  EXPECT_TRUE(at::equal(y[0][0], table[3]));
}

INSTANTIATE_TEST_SUITE_P(Types, EmbeddingTest, testing::Values(at::kFloat, at::kDouble));

}  // namespace
}  // namespace sluice::nn
