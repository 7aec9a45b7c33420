// Who is told that a parameter's gradient is whole, and when.
#include "nn/weight_queue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include <ATen/ATen.h>

namespace sluice::nn {
namespace {

using testing::ElementsAre;

struct TwoParameters {
  void push(const std::string& name, std::vector<at::Tensor> parameters) {
    queue.push(std::move(parameters), {}, [this, name] { told.push_back("runs " + name); });
  }
  std::string name_of(const at::Tensor& parameter) const { return parameter.is_same(often) ? "often" : "once"; }

  WeightGradQueue queue;
  at::Tensor often = at::ones({2}), once = at::ones({2});
  std::vector<std::string> told;
};

TEST(WeightGradQueue, AParameterOfSeveralWorksIsDoneOnceAndAfterTheLast) {
  TwoParameters two;
  two.push("a", {two.often});
  two.push("b", {two.once, two.often});
  two.push("c", {two.often});
  two.queue.run([&](const at::Tensor& parameter) { two.told.push_back(two.name_of(parameter)); });
  EXPECT_THAT(two.told, ElementsAre("runs a", "runs b", "once", "runs c", "often"));
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

}  // namespace
}  // namespace sluice::nn
