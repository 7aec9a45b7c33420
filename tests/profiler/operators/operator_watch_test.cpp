#include "profiler/operators/operator_watch.h"

#include <ATen/ATen.h>
#include <ATen/record_function.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <array>
#include <atomic>
#include <thread>
#include <vector>

#include "nn/own_operator.h"
#include "profiler/operator_profile.h"

namespace sluice::operators {
namespace {

using profiler::OperatorKey;
using profiler::OperatorSum;
using profiler::OperatorSums;
using profiler::Pass;

constexpr std::uint64_t kFloat = 4;

// A clock that every look moves on by one.
Nanoseconds ticks() {
  static std::atomic<Nanoseconds> time = 0;
  return ++time;
}

OperatorSums watched(const auto& work) {
  OperatorWatch watch(OperatorWatch::Threads::kThisOne, &ticks);
  watch.enter(0, Pass::kForward);
  work();
  watch.leave();
  return watch.take();
}

OperatorSum sum_of(const OperatorSums& sums, const char* name) {
  const auto found = sums.find({0, Pass::kForward, name});
  return found == sums.end() ? OperatorSum{} : found->second;
}

TEST(OperatorWatch, BytesAreThoseOfTheDistinctTensors) {
  const at::Tensor x = at::ones({6, 5}), y = at::ones({6, 5}), wide = at::ones({1, 5}).expand({6, 5});
  at::Tensor z;
  EXPECT_EQ(sum_of(watched([&] { z = at::add(x, y); }), "aten::add").bytes, 3 * 30 * kFloat);
  EXPECT_EQ(sum_of(watched([&] { z = at::add(x, x); }), "aten::add").bytes, 2 * 30 * kFloat) << "both are one tensor";
  EXPECT_EQ(sum_of(watched([&] { z.add_(y); }), "aten::add_").bytes, 2 * 30 * kFloat) << "it is its own result";
  EXPECT_EQ(sum_of(watched([&] { z.mul_(wide); }), "aten::mul_").bytes, (30 + 5) * kFloat) << "expanded";
  EXPECT_EQ(sum_of(watched([&] { z = at::cat({x, y}); }), "aten::cat").bytes, 2 * 60 * kFloat) << "a list";
  EXPECT_EQ(sum_of(watched([&] { z = x.view({5, 6}).t(); }), "aten::view").bytes, 0) << "another name";
  EXPECT_EQ(sum_of(watched([&] { z = at::empty({99}); }), "aten::empty").bytes, 0) << "no values yet";
  EXPECT_EQ(sum_of(watched([&] { z = at::neg(x.narrow(0, 2, 2)); }), "aten::neg").bytes, 2 * 10 * kFloat);
}

TEST(OperatorWatch, OfATableOnlyWhatTheIndexPointsAtIsRead) {
  constexpr std::uint64_t kIndex = 8;
  const at::Tensor table = at::ones({100, 6}), rows = at::tensor({3, 99, 3, 0}, at::kLong);
  at::Tensor z;
  EXPECT_EQ(sum_of(watched([&] { z = at::index_select(table, 0, rows); }), "aten::index_select").bytes,
            2 * 4 * 6 * kFloat + 4 * kIndex);
  const at::Tensor wide = at::ones({6, 100});
  EXPECT_EQ(sum_of(watched([&] { z = at::index_select(wide, 1, rows); }), "aten::index_select").bytes,
            2 * 4 * 6 * kFloat + 4 * kIndex);
  EXPECT_EQ(sum_of(watched([&] {
                     z = at::gather(table, 1, at::zeros({7, 2}, at::kLong));
                   }),
                   "aten::gather")
                .bytes,
            2 * 7 * 2 * kFloat + 14 * kIndex);
  double of_embedding = 0;  // whichever of the operators within it reads the table
  for (const auto& [key, sum] : watched([&] { z = at::embedding(table, rows); })) of_embedding += sum.bytes;
  EXPECT_EQ(of_embedding, 2 * 4 * 6 * kFloat + 4 * kIndex);
  const at::Tensor targets = at::tensor({1, 2, 5}, at::kLong), scores = at::ones({3, 50000}).log_softmax(1);
  double of_loss = 0;
  for (const auto& [key, sum] : watched([&] { z = at::nll_loss(scores, targets); })) of_loss += sum.bytes;
  EXPECT_GE(of_loss, 3 * (kFloat + kIndex));
  EXPECT_LE(of_loss, 3 * (kFloat + kIndex) + 4 * kFloat) << "and the results: the loss and the sum of the weights";
}

TEST(OperatorWatch, EveryResultCounts) {
  const at::Tensor image = at::ones({1, 1, 4, 4}), x = at::ones({6, 4});
  double all = 0;  // whichever of the operators within it does the work
  for (const auto& [key, sum] : watched([&] { (void)at::max_pool2d_with_indices(image, {2, 2}); })) all += sum.bytes;
  EXPECT_EQ(all, (16 + 4) * kFloat + 4 * 8) << "the indices, too";
  double of_max = 0;
  for (const auto& [key, sum] : watched([&] { (void)at::max(x, 1); })) of_max += sum.bytes;
  EXPECT_EQ(of_max, (24 + 6) * kFloat + 6 * 8) << "it squeezes its results in place, which moves nothing";
}

// Autograd's engine calls `detach` without a schema.
TEST(OperatorWatch, ADetachedTensorIsAnotherName) {
  const at::Tensor x = at::ones({30}).requires_grad_();
  at::Tensor z;
  for (const auto& [key, sum] : watched([&] { z = x.detach(); })) EXPECT_EQ(sum.bytes, 0) << key.name;
}

TEST(OperatorWatch, AProductWithinALinearLayerIsCountedOnce) {
  const at::Tensor x = at::ones({6, 5}), weight = at::ones({7, 5}), bias = at::ones({7});
  at::Tensor y;
  const OperatorSums sums = watched([&] { y = at::linear(x, weight, bias); });
  EXPECT_EQ(sum_of(sums, "aten::addmm").flops, 2 * 6 * 5 * 7);
  EXPECT_EQ(sum_of(sums, "aten::addmm").bytes, (30 + 35 + 7 + 42) * kFloat);
  EXPECT_EQ(sum_of(sums, "aten::linear").calls, 1);
  EXPECT_EQ(sum_of(sums, "aten::linear").flops, 0);
  EXPECT_EQ(sum_of(sums, "aten::linear").bytes, 0);
}

// Each look at the clock is one tick: a call without others in it lasts one, and so does what lies between two.
TEST(OperatorWatch, WatchingIsInNobodysTime) {
  OperatorWatch watch(OperatorWatch::Threads::kThisOne, &ticks);
  watch.enter(0, Pass::kForward);
  const Nanoseconds begin = ticks();
  {
    nn::OwnOperator outer("sluice::outer", {});
    for (int i = 0; i < 3; ++i) nn::OwnOperator inner("sluice::inner", {});
  }
  const Nanoseconds whole = ticks() - begin, cost = watch.take_cost();
  watch.leave();
  const OperatorSums sums = watch.take();
  EXPECT_EQ(sum_of(sums, "sluice::inner").self, 3);
  EXPECT_EQ(sum_of(sums, "sluice::outer").self, 4) << "before, between and after the three";
  EXPECT_EQ(whole - cost, 3 + 4 + 2) << "and before and after it";
}

TEST(OperatorWatch, BackwardBelongsToTheLayerWhoseForwardMadeIt) {
  const at::Tensor x = at::ones({4, 4}).requires_grad_();
  OperatorWatch watch(OperatorWatch::Threads::kAll);
  std::thread([&] {  // a stage's own, forward and back
    watch.enter(profiler::kNoLayer, Pass::kForward);
    watch.enter_layer(0);
    at::Tensor y = at::mm(x, x.detach());
    watch.leave_layer();
    watch.enter_layer(1);
    y = at::mm(y, at::mm(y.detach(), x.detach())).sum();
    watch.leave_layer();
    y = y * 2;
    watch.leave();
    watch.enter(profiler::kNoLayer, Pass::kBackward);
    torch::autograd::backward({y}, {});
    watch.leave();
    at::mm(x.detach(), x.detach());  // of nobody
  })
      .join();
  at::mm(x.detach(), x.detach());
  const OperatorSums sums = watch.take();
  const auto calls = [&](int layer, Pass pass) {
    const auto found = sums.find({layer, pass, "aten::mm"});
    return found == sums.end() ? 0 : found->second.calls;
  };
  EXPECT_EQ(calls(0, Pass::kForward), 1);
  EXPECT_EQ(calls(1, Pass::kForward), 2);
  EXPECT_EQ(calls(0, Pass::kBackward), 1);
  EXPECT_EQ(calls(1, Pass::kBackward), 1) << "the other operand needs no gradient";
  EXPECT_EQ(sums.count({profiler::kNoLayer, Pass::kForward, "aten::mul"}), 1);
  EXPECT_EQ(sums.count({profiler::kNoLayer, Pass::kBackward, "aten::mul"}), 1);
  EXPECT_TRUE(watch.take().empty());
}

// Autograd adds a gradient up in a function of its own, which has no number.
TEST(OperatorWatch, AParametersGradientIsAddedUpInTheLayerThatHasIt) {
  const at::Tensor x = at::ones({4, 4});
  const std::array weights{at::ones({4, 4}).requires_grad_(), at::ones({4, 4}).requires_grad_()};
  OperatorWatch watch(OperatorWatch::Threads::kThisOne);
  for (int pass = 0; pass < 3; ++pass) {  // the first one only keeps it
    watch.enter(profiler::kNoLayer, Pass::kForward);
    at::Tensor y = x;
    for (int layer = 0; layer < 2; ++layer) {
      watch.enter_layer(layer);
      y = at::mm(y, weights.at(layer));
      watch.leave_layer();
    }
    y = y.sum();
    watch.leave();
    watch.enter(profiler::kNoLayer, Pass::kBackward);
    torch::autograd::backward({y}, {});
    watch.leave();
  }
  const OperatorSums sums = watch.take();
  for (const int layer : {0, 1}) {
    const auto found = sums.find({layer, Pass::kBackward, "aten::add_"});
    ASSERT_NE(found, sums.end()) << layer;
    EXPECT_EQ(found->second.calls, 2) << layer;
  }
}

TEST(OperatorWatch, NothingIsCalledWhereNobodyWatches) {
  { const OperatorWatch watch(OperatorWatch::Threads::kAll); }
  EXPECT_FALSE(at::hasCallbacks());
  const nn::OwnOperator alone("sluice::alone", {at::ones({2})});
}

// An operator that throws is an error of whoever called it, and of nobody else.
TEST(OperatorWatch, ACallThatThrowsLeavesTheOthersAsTheyAre) {
  const at::Tensor x = at::ones({4, 4});
  const OperatorSums sums = watched([&] {
    EXPECT_THROW(at::mm(x, at::ones({3, 3})), c10::Error);
    at::mm(x, x);
  });
  EXPECT_EQ(sum_of(sums, "aten::mm").flops, 2 * 4 * 4 * 4);
}

TEST(OperatorMeans, AreOfOneMicroBatchAndTheSlowestComesFirst) {
  const OperatorSums sums{{{0, Pass::kForward, "a"}, {8, 4'000, 12, 20}},
                          {{0, Pass::kForward, "b"}, {4, 6'000, 2, 4}},
                          {{0, Pass::kBackward, "c"}, {4, 8'000, 4, 4}},
                          {{1, Pass::kForward, "d"}, {4, 8'000, 4, 4}}};
  const std::vector<profiler::OperatorMean> means = profiler::means_of(sums, 0, Pass::kForward, 4);
  ASSERT_EQ(means.size(), 2);
  EXPECT_EQ(means[0].name, "b");
  EXPECT_EQ(means[1].name, "a");
  EXPECT_DOUBLE_EQ(means[1].calls, 2);
  EXPECT_DOUBLE_EQ(means[1].self_s, 1e-6);
  EXPECT_DOUBLE_EQ(means[1].flops, 3);
  EXPECT_DOUBLE_EQ(means[1].bytes, 5);
}

}  // namespace
}  // namespace sluice::operators
