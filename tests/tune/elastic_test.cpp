#include "tune/elastic.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "core/error.h"
#include "core/rng.h"
#include "pipeline/schedule/plan_schedule.h"
#include "tune/predict.h"

namespace sluice::tune {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;

// Layers of so many seconds a sample, a third of it forward.
std::vector<LayerCost> layers_of(const std::vector<double>& seconds, std::uint64_t parameter_bytes = 0) {
  std::vector<LayerCost> layers;
  for (const double s : seconds) {
    layers.push_back({.forward = {.b_s = s / 3},
                      .input_gradient = {.b_s = s / 3},
                      .weight_gradient = {.b_s = s / 3},
                      .parameter_bytes = parameter_bytes,
                      .gradient_bytes = parameter_bytes});
  }
  return layers;
}

PlanRequest request_of(int devices, int replicas, int chunks, int layers) {
  return {.plan = {.replicas = replicas, .chunks = chunks, .global_batch = 64, .schedule = "1f1b"},
          .devices = devices,
          .replicas = replicas,
          .layers = layers};
}

TEST(ElasticPlan, GoesOnWithFewerDevicesAndMoreReplicasOfMicroBatchesAsLarge) {
  const auto layers = layers_of(std::vector(8, 1.0));
  const ElasticPlan found = elastic_plan(request_of(4, 1, 4, 8), 6, layers, {}, {});
  // Two trained layers of 64 samples: 6 forwards spread over all devices, and then 2 x 64 / 4 without a bubble.
  EXPECT_EQ(found.plan.frozen_layers, 6);
  EXPECT_EQ(found.plan.devices(), 1);
  EXPECT_EQ(found.plan.replicas, 4);
  EXPECT_EQ(found.plan.chunks, 1) << "16 samples, as before";
  EXPECT_THAT(found.plan.partition.layers_per_stage, ElementsAre(2));
  EXPECT_NEAR(found.predicted_s, 6 * 64 / 3.0 / 4 + 2 * 64 / 4, 1e-9);
  EXPECT_GT(found.staying_s, found.predicted_s);
}

TEST(ElasticPlan, StaysWhereItMayNotOrDoesNotWinTheChangeBack) {
  const auto layers = layers_of(std::vector(8, 1.0));
  const PlanRequest request = request_of(2, 1, 4, 8);
  const ElasticPlan free = elastic_plan(request, 4, layers, {}, {});
  EXPECT_EQ(free.plan.devices(), 1);
  const ElasticPlan fixed = elastic_plan(request, 4, layers, {}, {.may_shrink = false});
  EXPECT_EQ(fixed.plan.devices(), 2);
  EXPECT_EQ(fixed.plan.replicas, 1);
  EXPECT_THAT(fixed.plan.partition.layers_per_stage, ElementsAre(2, 2));
  EXPECT_EQ(fixed.predicted_s, free.staying_s);
  // Four frozen forwards over two devices; then (4 + 1) micro-batches of 16 samples through stages of two layers.
  EXPECT_NEAR(fixed.predicted_s, 4 * 64 / 3.0 / 2 + 5 * 16 * 2, 1e-9);
  const double gain = free.staying_s - free.predicted_s;
  EXPECT_EQ(elastic_plan(request, 4, layers, {}, {.change_s = 10 * gain, .steps = 10}).plan.devices(), 2);
  EXPECT_EQ(elastic_plan(request, 4, layers, {}, {.change_s = 10 * gain, .steps = 11}).plan.devices(), 1);
  // One device of two would take twice as long.
  EXPECT_EQ(elastic_plan(request, 4, layers, {}, {.may_replicate = false}).plan.devices(), 2);
}

TEST(ElasticPlan, SaysWhyItStays) {
  const auto layers = layers_of(std::vector(8, 1.0));
  const PlanRequest request = request_of(2, 1, 4, 8);
  const auto why = [&](const ElasticRules& rules) { return elastic_plan(request, 4, layers, {}, rules).why_it_stays; };
  EXPECT_EQ(why({}), "") << "the shape changes";
  EXPECT_EQ(why({.may_shrink = false}), "") << "the user wants it to stay";
  // Four frozen forwards of 64 samples over two devices are 42.67 s.
  EXPECT_EQ(
      why({.change_s = 1000, .steps = 10}),
      "keeping 2 stages x 1 replica (predicted 202666.67 ms a step). Best alternative: 1 stage x 2 replicas (170666.67 "
      "ms a step); changing takes 1000.000 s and would save 320.000 s in the 10 steps of an epoch.");
  EXPECT_EQ(
      why({.may_replicate = false}),
      "keeping 2 stages x 1 replica (predicted 202666.67 ms a step). Best alternative: 1 stage x 1 replica (341333.33 "
      "ms a step).");
  EXPECT_EQ(elastic_plan(request_of(2, 1, 4, 8), 7, layers, {}, {.may_shrink = false}).why_it_stays, "");
}

TEST(ElasticPlan, ShrinksWhereThereAreTooFewLayersLeft) {
  const auto layers = layers_of(std::vector(8, 1.0));
  const ElasticPlan found = elastic_plan(request_of(4, 1, 4, 8), 6, layers, {}, {.may_shrink = false});
  EXPECT_EQ(found.plan.devices(), 2);
  EXPECT_EQ(found.plan.replicas, 1);
  PlanRequest looped = request_of(2, 1, 4, 8);
  looped.plan.schedule = "interleaved";
  looped.plan.virtual_stages = 2;
  EXPECT_THAT([&] { (void)elastic_plan(looped, 7, layers, {}, {}); },
              ThrowsMessage<ConfigError>(HasSubstr("with 7 of 8 layers frozen, no pipeline of up to 2 devices")));
}

// A model that one device has no room for stays cut.
TEST(ElasticPlan, NeedsRoomForParametersAndFrozenLayers) {
  const auto layers = layers_of(std::vector(4, 1.0), 100);
  PlanRequest request = request_of(2, 1, 4, 4);
  request.memory_limit = 650;  // 2 frozen ones of 100 and 2 of parameters and gradients are 600
  EXPECT_EQ(elastic_plan(request, 2, layers, {}, {}).plan.devices(), 1);
  request.memory_limit = 550;
  EXPECT_EQ(elastic_plan(request, 2, layers, {}, {}).plan.devices(), 2);
  // And for what they make of a device's samples, all at once: 32 of 64 on each of two, in either shape.
  auto wide = layers;
  wide[1].output_bytes = 10;
  request.memory_limit = 650 + 32 * 10;
  EXPECT_EQ(elastic_plan(request, 2, wide, {}, {}).plan.devices(), 1);
  request.memory_limit = 550 + 32 * 10;
  EXPECT_EQ(elastic_plan(request, 2, wide, {}, {}).plan.devices(), 2);
}

TEST(ElasticPlan, StaysInTheShapeThatItHasNow) {
  const auto layers = layers_of(std::vector(8, 1.0));
  const PlanRequest request = request_of(2, 1, 4, 8);
  const ElasticPlan shrunk = elastic_plan(request, 2, layers, {}, {});
  ASSERT_EQ(shrunk.plan.devices(), 1);
  // A change costs more than any shape can win: it does not go back to two devices.
  const ElasticPlan later = elastic_plan(request, 4, layers, {}, {.current = shrunk.plan, .change_s = 1e9});
  EXPECT_EQ(later.plan.devices(), 1);
  EXPECT_EQ(later.plan.replicas, 2);
  EXPECT_EQ(later.predicted_s, later.staying_s);
}

TEST(ElasticPlan, WhereNothingIsEstimatedToFitOneIsTriedAllTheSame) {
  const auto layers = layers_of(std::vector(4, 1.0), 100);
  PlanRequest request = request_of(2, 1, 4, 4);
  request.memory_limit = 10;
  testing::internal::CaptureStderr();
  EXPECT_EQ(elastic_plan(request, 2, layers, {}, {}).plan.devices(), 2);
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("no pipeline shape is estimated to fit 10 B"));
}

// No other number of devices has a shorter step, and the prediction is the predictor's.
TEST(ElasticPlan, IsTheShortestOfAllShapes) {
  RngStream rng(hash_name("elastic"));
  for (int round = 0; round < 60; ++round) {
    const int devices = 1 + static_cast<int>(rng.below(4)), replicas = 1 + static_cast<int>(rng.below(2));
    const int frozen = static_cast<int>(rng.below(6));
    std::vector<double> seconds(8);
    for (double& s : seconds) s = 0.1 + rng.uniform();
    const auto layers = layers_of(seconds, 1000);
    const StepOverheads overheads{.all_reduce = LinkCost{.latency_s = 0.5, .bytes_per_s = 100 + 1e4 * rng.uniform()}};
    const PlanRequest request = request_of(devices, replicas, 4, 8);
    const ElasticPlan found = elastic_plan(request, frozen, layers, overheads, {});
    EXPECT_NEAR(found.predicted_s, predict_step(found.plan, layers, 64.0 / found.plan.replicas, overheads).seconds,
                1e-9);
    EXPECT_EQ(std::accumulate(found.plan.partition.layers_per_stage.begin(),
                              found.plan.partition.layers_per_stage.end(), frozen),
              8);
    EXPECT_LE(found.plan.devices() * found.plan.replicas, devices * replicas);
    for (int k = 1; k <= devices; ++k) {
      PlanRequest other = request_of(k, devices * replicas / k, 1, 8);
      other.plan.frozen_layers = frozen;
      other.plan.chunks = std::max(1, static_cast<int>(std::lround(4.0 * replicas / other.replicas)));
      if (k > 8 - frozen) continue;
      const Plan plan = make_plan(other, layers, overheads);
      EXPECT_GE(predict_step(plan, layers, 64.0 / other.replicas, overheads).seconds, found.predicted_s - 1e-9);
    }
  }
}

}  // namespace
}  // namespace sluice::tune
