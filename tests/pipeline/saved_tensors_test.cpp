// What autograd keeps, against what each operation is known to keep, and that watching changes nothing.
#include "pipeline/saved_tensors.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <set>
#include <thread>

#include "nn/conv.h"

namespace sluice::pipeline {
namespace {

at::Tensor leaf(at::IntArrayRef sizes) { return at::randn(sizes).requires_grad_(true); }

TEST(TensorsSavedBy, SeesWhatBuiltInOperationsKeep) {
  const at::Tensor x = leaf({3, 4}), y = leaf({3, 4});
  at::Tensor out;
  const auto of_product = tensors_saved_by([&] { out = x * y; });
  ASSERT_EQ(of_product.size(), 2U);  // each factor for the gradient of the other
  const std::set<const void*> factors{storage_of(of_product[0]), storage_of(of_product[1])};
  EXPECT_EQ(factors, (std::set<const void*>{storage_of(x), storage_of(y)}));
  const auto of_relu = tensors_saved_by([&] { out = x.relu(); });
  ASSERT_EQ(of_relu.size(), 1U);  // its own output
  EXPECT_EQ(storage_of(of_relu[0]), storage_of(out));
  EXPECT_TRUE(tensors_saved_by([&] { out = x + y; }).empty());
}

TEST(TensorsSavedBy, SeesWhatOurOwnFunctionsKeep) {
  const at::Tensor x = leaf({2, 3, 8, 8}).contiguous(at::MemoryFormat::ChannelsLast), weight = leaf({4, 3, 3, 3});
  at::Tensor out;
  const auto saved = tensors_saved_by([&] { out = nn::conv2d(x, weight, std::nullopt, 1, 1, nullptr, nullptr); });
  std::size_t found = 0;
  for (const at::Tensor& tensor : saved) {
    if (!tensor.defined()) continue;
    EXPECT_TRUE(storage_of(tensor) == storage_of(x) || storage_of(tensor) == storage_of(weight));
    ++found;
  }
  EXPECT_EQ(found, 2U);
}

TEST(TensorsSavedBy, SeesNothingWhereNothingIsTrained) {
  const at::Tensor x = at::randn({3}), y = at::randn({3});
  EXPECT_TRUE(tensors_saved_by([&] { (void)(x * y); }).empty());
}

TEST(TensorsSavedBy, AGraphMadeMeanwhileHasTheSameGradients) {
  const at::Tensor x = leaf({5}), y = leaf({5});
  at::Tensor watched;
  ASSERT_FALSE(tensors_saved_by([&] { watched = (x * y).sigmoid().sum(); }).empty());
  torch::autograd::backward({watched}, {});
  const at::Tensor gradient = x.grad().clone();
  x.mutable_grad().reset();
  torch::autograd::backward({(x * y).sigmoid().sum()}, {});
  EXPECT_TRUE(at::equal(gradient, x.grad()));
}

TEST(TensorsSavedBy, EndsWhenItsPassThrows) {
  const at::Tensor x = leaf({5});
  EXPECT_THROW(static_cast<void>(tensors_saved_by([&] { (void)x.view({7}); })), c10::Error);
  const at::Tensor y = x * x;  // would go into the vector that is gone
  torch::autograd::backward({y.sum()}, {});
  EXPECT_TRUE(at::allclose(x.grad(), 2 * x.detach()));
}

TEST(TensorsSavedBy, SeesOnlyItsOwnThread) {
  const at::Tensor x = leaf({5});
  EXPECT_TRUE(tensors_saved_by([&] { std::jthread([&] { (void)(x * x); }).join(); }).empty());
}

}  // namespace
}  // namespace sluice::pipeline
