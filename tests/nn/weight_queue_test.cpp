#include "nn/weight_queue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include <ATen/ATen.h>

#include "nn/conv.h"
#include "nn/linear.h"

namespace sluice::nn {
namespace {

using testing::ElementsAre;

struct TwoParameters {
  void push(const std::string& name, std::vector<at::Tensor> parameters) {
    queue.push(std::move(parameters), {}, [this, name] { ready.push_back("runs " + name); });
  }
  std::string name_of(const at::Tensor& parameter) const { return parameter.is_same(often) ? "often" : "once"; }

  WeightGradQueue queue;
  at::Tensor often = at::ones({2}), once = at::ones({2});
  std::vector<std::string> ready;
};

TEST(WeightGradQueue, AParameterOfSeveralWorksIsDoneOnceAndAfterTheLast) {
  TwoParameters two;
  two.push("a", {two.often});
  two.push("b", {two.once, two.often});
  two.push("c", {two.often});
  two.queue.run([&](const at::Tensor& parameter) { two.ready.push_back(two.name_of(parameter)); });
  EXPECT_THAT(two.ready, ElementsAre("runs a", "runs b", "once", "runs c", "often"));
  EXPECT_TRUE(two.queue.empty());
}

TEST(WeightGradQueue, WaitsForAParameterUntilTheLastWorkThatAddsToItHasRun) {
  TwoParameters two;
  two.push("a", {two.often});
  two.push("b", {two.once});
  two.push("c", {two.often});
  std::vector<bool> waits;
  two.queue.run([&](const at::Tensor&) { waits.push_back(two.queue.waits_for(two.often)); });
  EXPECT_THAT(waits, ElementsAre(true, false));
  EXPECT_FALSE(two.queue.waits_for(two.once));
}

TEST(WeightGradQueue, DoesNotKeepTheInputOfTheGraphAlive) {
  const at::Tensor image_weight = at::randn({16, 16, 3, 3}).requires_grad_(),
                   weight = at::randn({3, 5}).requires_grad_();
  const auto leaf_outlives = [](at::IntArrayRef shape, const auto& layer) {
    WeightGradQueue queue;
    at::Tensor leaf = at::randn(shape).requires_grad_();
    const c10::weak_intrusive_ptr<c10::TensorImpl> watch(leaf.getIntrusivePtr());
    layer(leaf.exp(), &queue).sum().backward();
    EXPECT_FALSE(queue.empty());
    leaf = at::Tensor();
    return !watch.expired();
  };
  EXPECT_FALSE(leaf_outlives({4, 5}, [&](const at::Tensor& x, WeightGradQueue* queue) {
    return linear(x, {weight}, {}, {.weight_queue = queue}, WeightLayout::kOutIn);
  }));
  EXPECT_FALSE(leaf_outlives({2, 16, 8, 8}, [&](const at::Tensor& x, WeightGradQueue* queue) {
    return conv2d(x, image_weight, std::nullopt, 1, 1, queue, nullptr);
  }));
}

}  // namespace
}  // namespace sluice::nn
