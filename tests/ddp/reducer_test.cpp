#include "ddp/reducer.h"

#include <gtest/gtest.h>

#include <ATen/ATen.h>
#include <thread>

#include "core/error.h"

namespace sluice::ddp {
namespace {

constexpr int kParams = 6;
constexpr int kSize = 5;

StageGradients stage_gradients(int replicas) {
  StageGradients gradients{StageId{0}, {}, {}, {}};
  for (int p = 0; p < kParams; ++p) gradients.extents.push_back({ParamId{p}, p * kSize, (p + 1) * kSize});
  for (int r = 0; r < replicas; ++r) {
    gradients.flat.push_back(at::full({kParams * kSize}, r + 1, at::kDouble));
    gradients.devices.push_back({device::DeviceKind::kCpu, r});
  }
  return gradients;
}

// Small buckets, so that several are in flight at once.
Reducer make_reducer(const StageGradients& gradients) {
  return Reducer({gradients}, {.bucket_bytes = 2 * kSize * sizeof(double)});
}

TEST(Reducer, Replica0HoldsTheSumOfAllReplicas) {
  for (const int replicas : {1, 2, 4}) {
    const StageGradients gradients = stage_gradients(replicas);
    Reducer reducer = make_reducer(gradients);
    reducer.begin_step();
    {
      std::vector<std::jthread> threads;
      for (int r = 0; r < replicas; ++r) {
        threads.emplace_back([&reducer, r] {
          for (int p = kParams - 1; p >= 0; --p) reducer.on_grad_ready(ReplicaId{r}, ParamId{p});
          reducer.on_backward_done(ReplicaId{r}, StageId{0});
        });
      }
    }
    const auto outcome = reducer.finish_step({.targets = 7, .loss_sum = 3.5, .top1 = 2, .top5 = 6});
    EXPECT_EQ(outcome.total.targets, 7);
    EXPECT_EQ(outcome.total.top1, 2);
    EXPECT_EQ(outcome.total.top5, 6);
    EXPECT_EQ(outcome.divisor, 1.0);
    const double sum = replicas * (replicas + 1) / 2.0;
    EXPECT_TRUE(at::equal(gradients.flat[0], at::full({kParams * kSize}, sum, at::kDouble))) << replicas;
  }
}

TEST(Reducer, AParameterWithoutAGradientDoesNotHoldUpItsBucket) {
  const StageGradients gradients = stage_gradients(2);
  Reducer reducer = make_reducer(gradients);
  reducer.begin_step();
  reducer.on_grad_ready(ReplicaId{0}, ParamId{0});
  reducer.on_backward_done(ReplicaId{0}, StageId{0});
  reducer.on_backward_done(ReplicaId{1}, StageId{0});
  static_cast<void>(reducer.finish_step({}));
  EXPECT_TRUE(at::equal(gradients.flat[0], at::full({kParams * kSize}, 3.0, at::kDouble)));
}

TEST(Reducer, EndingAStepEarlyOrReportingTwiceIsOurBug) {
  Reducer reducer = make_reducer(stage_gradients(2));
  reducer.begin_step();
  reducer.on_grad_ready(ReplicaId{0}, ParamId{0});
  EXPECT_THROW(reducer.on_grad_ready(ReplicaId{0}, ParamId{0}), BugError);
  EXPECT_THROW(static_cast<void>(reducer.finish_step({})), BugError);
}

}  // namespace
}  // namespace sluice::ddp
