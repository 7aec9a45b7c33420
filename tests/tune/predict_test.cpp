// predict_step() against closed forms, and bounds that hold for any costs. p devices, m micro-batches, t of a stage.
#include "tune/predict.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <string>

#include "core/error.h"
#include "core/rng.h"
#include "pipeline/schedule/generators.h"
#include "pipeline/schedule/plan_schedule.h"
#include "tune/make_plan.h"

namespace sluice::tune {
namespace {

using pipeline::Schedule;
using pipeline::StepCost;

constexpr double kRounding = 1e-9;

Schedule schedule_of(const std::string& name, int devices, int chunks) {
  return pipeline::with_reductions(pipeline::make_schedule(name, {.stages = devices, .micro_batches = chunks}));
}

StepCosts equal_stages(int stages, const StepCost& cost) { return {.stages = std::vector(stages, cost)}; }

// [stage]: gradients that are whole at the end of the last backward.
StageGradients whole(const std::vector<double>& bytes) {
  StageGradients gradients;
  for (const double of_stage : bytes) gradients.push_back({{.bytes = of_stage}});
  return gradients;
}

double sum_of(const DevicePrediction& device) {
  return device.compute + device.all_reduce + device.update + device.bubble + device.load + device.other;
}

TEST(PredictStep, EqualStagesFillAndDrain) {
  const StepCost cost{.forward = 1, .input = 0.8, .weight = 1.2};
  for (const std::string name : {"gpipe", "1f1b"}) {
    for (const int p : {1, 2, 4}) {
      for (const int m : {1, 2, 8}) {
        const StepPrediction step = predict_step(schedule_of(name, p, m), equal_stages(p, cost));
        EXPECT_NEAR(step.seconds, (m + p - 1) * 3.0, kRounding) << name << " p=" << p << " m=" << m;
        EXPECT_NEAR(step.devices.at(0).bubble, (p - 1) * 3.0, kRounding);
      }
    }
  }
}

TEST(PredictStep, ZeroBubbleLosesWhatItsFormulaSays) {
  for (const StepCost cost : {StepCost{1, 1, 1}, StepCost{2, 3, 2}, StepCost{1, 1.2, 0.8}}) {
    for (const int p : {2, 3, 4}) {
      const double bubble = (p - 1) * (cost.forward + cost.input - std::min({cost.forward, cost.input, cost.weight}));
      const StepPrediction step = predict_step(schedule_of("zb-h1", p, 2 * p), equal_stages(p, cost));
      EXPECT_NEAR(step.seconds, 2 * p * (cost.forward + cost.input + cost.weight) + bubble, kRounding);
      for (const DevicePrediction& device : step.devices) EXPECT_NEAR(device.bubble, bubble, kRounding);
    }
  }
}

// GPipe pays each hop once on the way out and once on the way back.
TEST(PredictStep, AHopIsPaidThereAndBack) {
  StepCosts costs = equal_stages(3, {.forward = 1, .input = 1, .weight = 1});
  const double without = predict_step(schedule_of("gpipe", 3, 4), costs).seconds;
  costs.overheads.borders = {{.latency_s = 0.1}, {.latency_s = 0.3}, {}};
  EXPECT_NEAR(predict_step(schedule_of("gpipe", 3, 4), costs).seconds, without + 2 * (0.1 + 0.3), kRounding);
  // Each border carries its own stage's bytes: 2 s and 0.5 s.
  costs.sent_bytes = {20, 10, 1000};
  costs.overheads.borders = {{.bytes_per_s = 10}, {.bytes_per_s = 20}, {.bytes_per_s = 1e-3}};
  EXPECT_NEAR(predict_step(schedule_of("gpipe", 3, 1), costs).seconds, 3 * 3 + 2 * (2 + 0.5), kRounding);
}

TEST(PredictStep, LinksOfEndlessBandwidthAreNone) {
  StepCosts costs = equal_stages(4, {.forward = 1, .input = 1.5, .weight = 0.5});
  costs.sent_bytes = {1e9, 2e9, 3e9, 0};
  costs.gradients = whole({1e9, 1e9, 1e9, 1e9});
  const Schedule schedule = schedule_of("1f1b", 4, 6);
  const double without = predict_step(schedule, costs).seconds;
  for (const auto& endless : {LinkCost{}, LinkCost{.bytes_per_s = std::numeric_limits<double>::infinity()}}) {
    costs.overheads = {.borders = std::vector(4, endless), .all_reduce = endless, .bucket_bytes = 1e6};
    EXPECT_DOUBLE_EQ(predict_step(schedule, costs).seconds, without);
  }
}

TEST(AllReduce, OfASingleStageIsExposedWhole) {
  StepCosts costs = equal_stages(1, {.forward = 1, .input = 1, .weight = 1});
  costs.gradients = whole({100});
  costs.overheads.all_reduce = LinkCost{.latency_s = 0.5, .bytes_per_s = 20};
  EXPECT_NEAR(predict_step(schedule_of("1f1b", 1, 4), costs).all_reduce, 5.5, kRounding);
  costs.overheads.bucket_bytes = 30;  // four buckets, one after the other
  const StepPrediction step = predict_step(schedule_of("1f1b", 1, 4), costs);
  EXPECT_NEAR(step.all_reduce, 5 + 4 * 0.5, kRounding);
  EXPECT_NEAR(step.seconds, 4 * 3 + 7, kRounding);
}

TEST(AllReduce, SendsTheShareOfTheBytesThatItIsTold) {
  StepCosts costs = equal_stages(1, {.forward = 1, .input = 1, .weight = 1});
  costs.gradients = whole({100});
  costs.overheads.all_reduce = LinkCost{.latency_s = 0.5, .bytes_per_s = 20};
  costs.overheads.sent_share = 0.25;
  EXPECT_NEAR(predict_step(schedule_of("1f1b", 1, 4), costs).all_reduce, 0.5 + 5 * 0.25, kRounding);
}

// GPipe on p devices: stage s has its last gradient (p - 1 - s) backwards before the end. Its sum begins there.
TEST(AllReduce, IsHiddenByTheStagesThatStillWork) {
  const double backward = 2;
  StepCosts costs = equal_stages(3, {.forward = 1, .input = backward / 2, .weight = backward / 2});
  const Schedule schedule = schedule_of("gpipe", 3, 4);
  const double compute = predict_step(schedule, costs).seconds;
  const auto exposed = [&](const std::vector<double>& bytes) {
    costs.gradients = whole(bytes);
    costs.overheads.all_reduce = LinkCost{.bytes_per_s = 1};
    const StepPrediction step = predict_step(schedule, costs);
    EXPECT_NEAR(step.seconds, compute + step.all_reduce, kRounding);
    return step.all_reduce;
  };
  EXPECT_NEAR(exposed({0, 0, 2 * backward}), 0, kRounding) << "two backwards hide it";
  EXPECT_NEAR(exposed({0, 0, 2 * backward + 7}), 7, kRounding) << "longer than all else: what is left";
  EXPECT_NEAR(exposed({0, 0.5, 0}), 0, kRounding);
  EXPECT_NEAR(exposed({3, 0, 0}), 3, kRounding) << "nothing works any more";
  // One network: stage 2's bytes hold up stage 1's, and these stage 0's.
  EXPECT_NEAR(exposed({1, 1, 10}), 10 + 1 + 1 - 2 * backward, kRounding);
}

TEST(AllReduce, OfSeveralNetworksWaitsForTheSlowest) {
  StepCosts costs = equal_stages(3, {.forward = 1, .input = 1, .weight = 1});
  costs.gradients = whole({1, 1, 10});
  costs.overheads.all_reduce = LinkCost{.bytes_per_s = 1};
  const auto exposed = [&](const std::vector<std::vector<int>>& networks) {
    costs.overheads.networks = networks;
    return predict_step(schedule_of("gpipe", 3, 4), costs).all_reduce;
  };
  // Stage 2 is whole two backwards of 2 s before the end.
  EXPECT_NEAR(exposed({}), 10 + 1 + 1 - 4, kRounding);
  EXPECT_NEAR(exposed({{0, 1, 2}}), 10 + 1 + 1 - 4, kRounding);
  EXPECT_NEAR(exposed({{0, 1}, {2}}), 10 - 4, kRounding);
  EXPECT_NEAR(exposed({{0, 1}, {1, 2}}), 10 + 1 - 4, kRounding);
  EXPECT_NEAR(exposed({{0}, {1}}), 1, kRounding);
}

TEST(Update, IsOfTheDeviceWithMostWeights) {
  StepCosts costs = equal_stages(2, {.forward = 1, .input = 1, .weight = 1});
  costs.gradients = whole({10, 40});
  costs.overheads.update = AffineCost{.a_s = 1, .b_s = 0.1};
  StepPrediction step = predict_step(schedule_of("1f1b", 2, 2), costs);
  EXPECT_NEAR(step.update, 5, kRounding);
  EXPECT_NEAR(step.seconds, 3 * 3 + 5, kRounding);
  EXPECT_NEAR(step.devices[0].update, 2, kRounding);
  EXPECT_NEAR(step.devices[0].bubble, 3 + 3, kRounding);
  costs.overheads.updaters = 2;
  EXPECT_NEAR(predict_step(schedule_of("1f1b", 2, 2), costs).update, 3, kRounding);
}

// Whatever is given.
TEST(PredictStep, IsAtLeastTheBusiestDeviceAndAtMostTheSumOfAll) {
  RngStream rng(17);
  for (const std::string& name : pipeline::schedule_names()) {
    for (int round = 0; round < 40; ++round) {
      const int p = 1 + static_cast<int>(rng.below(4)), m = 2 * p + static_cast<int>(rng.below(4)) * p;
      const Schedule schedule = schedule_of(name, p, m);
      StepCosts costs;
      double sum = 0;
      std::vector<double> updates;
      costs.overheads = {
          .all_reduce = LinkCost{rng.uniform(), 100.0}, .bucket_bytes = 50, .update = AffineCost{0.1, 0.01}};
      for (int s = 0; s < schedule.stages; ++s) {
        costs.stages.push_back({rng.uniform(), rng.uniform(), rng.uniform()});
        costs.sent_bytes.push_back(10 * rng.uniform());
        costs.gradients.push_back({{.bytes = rng.below(3) == 0 ? 0.0 : 200 * rng.uniform()}});
        costs.overheads.borders.push_back({rng.uniform(), 20.0});
        const double bytes = costs.trained_bytes(s);
        sum += m * (costs.stages[s].forward + costs.stages[s].input + costs.stages[s].weight);
        sum += 2 * m * costs.overheads.borders[s].at(costs.sent_bytes[s]);
        if (bytes > 0)
          sum += bytes / 100 + 5 * costs.overheads.all_reduce->latency_s + costs.overheads.update->at(bytes);
      }
      const StepPrediction step = predict_step(schedule, costs);
      EXPECT_LE(step.seconds, sum * (1 + kRounding)) << name;
      for (const DevicePrediction& device : step.devices) {
        EXPECT_GE(device.bubble, -kRounding) << name;
        EXPECT_GE(step.seconds, device.compute + device.update - kRounding) << name;
        EXPECT_NEAR(sum_of(device), step.seconds, kRounding * sum) << name;
      }
    }
  }
}

LayerCost taking(double seconds_per_sample) { return {.forward = {.b_s = seconds_per_sample}}; }

TEST(PredictStep, OfAPlanTakesItsSchedulesOwnOrder) {
  for (const int chunks : {1, 2, 8}) {
    Plan plan{.partition = {{1, 1}}, .chunks = chunks};
    // A stage takes t for a micro-batch of 16 / m samples at half a second each.
    EXPECT_NEAR(predict_step(plan, std::vector(2, taking(0.5)), 16).seconds, (chunks + 1) * 0.5 * 16 / chunks,
                kRounding);
    EXPECT_NEAR(predict_step(plan, std::vector{taking(1), taking(3)}, chunks).seconds, 1 + 3.0 * chunks, kRounding);
    plan.recompute = {true, false};  // stage 0 runs its forward again
    EXPECT_NEAR(predict_step(plan, std::vector{taking(1), taking(3)}, chunks).seconds, 2 + 3.0 * chunks, kRounding);
  }
  EXPECT_THROW(static_cast<void>(predict_step({.partition = {{1}}, .schedule = "none"}, std::vector{taking(1)}, 1)),
               ConfigError);
  EXPECT_THROW(static_cast<void>(predict_step({.partition = {{2}}}, std::vector{taking(1)}, 1)), BugError);
}

// Weights are transformed for the first micro-batch of a step; a whole backward is not the sum of its halves; zb-h1 has
// the halves.
TEST(PredictStep, HasFirstUsesAndWholeBackwards) {
  const LayerCost layer{.forward = {.a_s = 1},
                        .input_gradient = {.a_s = 1},
                        .weight_gradient = {.a_s = 1},
                        .backward = {.a_s = 1.5},
                        .first_forward_s = 0.5,
                        .first_backward_s = 0.25};
  for (const int chunks : {1, 4}) {
    const double first = 2 * 0.75;
    Plan plan{.partition = {{2}}, .chunks = chunks, .schedule = "gpipe"};
    EXPECT_NEAR(predict_step(plan, std::vector(2, layer), 16).seconds, chunks * 2 * 2.5 + first, kRounding);
    plan.schedule = "zb-h1";
    if (chunks == 1) continue;
    EXPECT_NEAR(predict_step(plan, std::vector(2, layer), 16).seconds, chunks * 2 * 3.0 + first, kRounding);
    plan.recompute = {true};  // the forward again, before the input's gradient
    EXPECT_NEAR(predict_step(plan, std::vector(2, layer), 16).seconds, chunks * 2 * 4.0 + first, kRounding);
  }
}

// The last layer's gradients are whole first: what the layers before it still take hides their sum. Of 3 s of it.
TEST(PredictStep, SumsOfTheLastLayersAreHiddenByTheFirst) {
  const LayerCost silent{.input_gradient = {.a_s = 1.5}, .weight_gradient = {.a_s = 0.5}, .backward = {.a_s = 2}};
  LayerCost summed = silent;
  summed.gradient_bytes = 300;
  const StepOverheads overheads{.all_reduce = LinkCost{.bytes_per_s = 100}, .bucket_bytes = 300};
  const auto exposed = [&](const std::vector<LayerCost>& layers, const std::string& schedule) {
    return predict_step({.partition = {{2}}, .schedule = schedule}, layers, 4, overheads).all_reduce;
  };
  EXPECT_NEAR(exposed({silent, summed}, "gpipe"), 3 - 2, kRounding);
  EXPECT_NEAR(exposed({summed, silent}, "gpipe"), 3, kRounding);
  EXPECT_NEAR(exposed({silent, summed}, "zb-h1"), 3 - 0.5, kRounding) << "by its weight gradient alone";
}

// A quarter of the samples run through them; the devices share these, and nothing else goes on meanwhile.
TEST(PredictStep, FrozenLayersRunOnAllDevicesFirst) {
  const Plan plan{.partition = {{1, 1}}, .chunks = 4, .schedule = "gpipe", .frozen_layers = 2};
  const std::vector<LayerCost> layers{taking(3), taking(5), taking(1), taking(1)};
  const double frozen = 0.25 * (3 + 5) * 16 / 2;
  const StepPrediction step = predict_step(plan, layers, 16, {.frozen_share = 0.25});
  EXPECT_NEAR(step.seconds, frozen + (4 + 1) * 4, kRounding);
  for (const DevicePrediction& device : step.devices) {
    EXPECT_NEAR(device.compute, frozen + 16, kRounding);
    EXPECT_NEAR(sum_of(device), step.seconds, kRounding);
  }
}

// Two replicas of one stage always work at the same time; a stage's slowdown is the mean of its layers' by their time.
TEST(PredictStep, LayersSlowEachOtherDown) {
  LayerCost slowed = taking(3), other = taking(1);
  slowed.slowdown = 1.4;
  const StepOverheads overheads{.contenders = 2, .replicas_on_machine = 2};
  const Plan plan{.partition = {{2}}, .replicas = 2, .chunks = 2};
  EXPECT_NEAR(predict_step(plan, std::vector{slowed, other}, 8, overheads).seconds, 8 * 4 * (3 * 1.4 + 1) / 4,
              kRounding);
  EXPECT_NEAR(predict_step(plan, std::vector{slowed, other}, 8).seconds, 8 * 4, kRounding);
}

// n devices of a machine with c cores take n / c times as long where they all work: frozen layers, stages, updates.
TEST(PredictStep, MoreDevicesThanCoresShareThem) {
  for (const int n : {1, 2, 4, 8}) {
    const Plan plan{.partition = {{1}}, .replicas = n, .chunks = 4, .frozen_layers = 1};
    std::vector<LayerCost> layers{taking(3), taking(1)};
    layers.back().gradient_bytes = 10;
    const StepOverheads overheads{
        .update = AffineCost{.a_s = 0, .b_s = 0.5}, .updaters = n, .replicas_on_machine = n, .runnable = 2};
    const double shared = std::max(1.0, n / 2.0);
    const StepPrediction step = predict_step(plan, layers, 16, overheads);
    EXPECT_NEAR(step.devices.at(0).compute, shared * (3 + 1) * 16, kRounding) << n;
    EXPECT_NEAR(step.update, shared * 10 * 0.5 / n, kRounding) << n;
    EXPECT_NEAR(sum_of(step.devices.at(0)), step.seconds, kRounding) << n;
  }
}

// Four stages of equal weights on two cores; and one that has most of the weights, which its own core updates.
TEST(PredictStep, AnUpdateIsNoFasterThanTheCores) {
  StepCosts costs = equal_stages(4, {.forward = 1, .input = 1, .weight = 1});
  costs.overheads.update = AffineCost{.a_s = 0, .b_s = 1};
  costs.overheads.runnable = 2;
  costs.gradients = whole({1, 1, 1, 1});
  EXPECT_NEAR(predict_step(schedule_of("1f1b", 4, 4), costs).update, 2, kRounding);
  costs.gradients = whole({9, 1, 1, 1});
  EXPECT_NEAR(predict_step(schedule_of("1f1b", 4, 4), costs).update, 9, kRounding);
}

// Layers of a second each but for what they send.
std::vector<LayerCost> sending(const std::vector<std::uint64_t>& bytes) {
  std::vector<LayerCost> layers;
  for (const std::uint64_t output : bytes) layers.push_back({.forward = {.a_s = 1}, .output_bytes = output});
  return layers;
}

Partition cut_of(const std::vector<LayerCost>& layers, int devices, const StepOverheads& overheads = {},
                 const std::string& schedule = "1f1b", int virtual_stages = 1) {
  const PlanRequest request{
      .plan = {.chunks = 4, .global_batch = 4, .schedule = schedule, .virtual_stages = virtual_stages},
      .devices = devices,
      .layers = static_cast<int>(layers.size())};
  return make_plan(request, layers, overheads).partition;
}

TEST(MakePlan, AmongEqualCutsTheOneThatSendsLess) {
  // Two of three stages have two of five layers each.
  EXPECT_EQ(cut_of(sending({5, 9, 1, 9, 9}), 3), (Partition{{1, 2, 2}}));
  EXPECT_EQ(cut_of(sending({9, 5, 1, 9, 9}), 3), (Partition{{2, 1, 2}}));
  EXPECT_EQ(cut_of(sending({9, 5, 9, 1, 9}), 3), (Partition{{2, 2, 1}}));
  EXPECT_EQ(cut_of(sending({1, 9, 9}), 2), (Partition{{1, 2}}));
  EXPECT_EQ(cut_of(sending({9, 1, 9}), 2), (Partition{{2, 1}}));
  // One of four stages has two layers, and the border that this saves is the dearest.
  EXPECT_EQ(cut_of(sending({5, 9, 1, 2, 9}), 2, {}, "interleaved", 2), (Partition{{1, 2, 1, 1}}));
  EXPECT_EQ(cut_of(sending({9, 5, 1, 2, 9}), 2, {}, "interleaved", 2), (Partition{{2, 1, 1, 1}}));
}

TEST(MakePlan, ACheaperBorderMayOutweighASlightlySlowerStage) {
  // 10 + 10 across a border of 40 s, or 10.4 + 9.6 across one that is free.
  std::vector<LayerCost> layers = sending({1, 400, 1, 1});
  const std::vector<double> seconds{9.6, 0.4, 0.4, 9.6};
  for (int i = 0; i < 4; ++i) layers[i].forward.a_s = seconds[i];
  const StepOverheads slow{.borders = {{.bytes_per_s = 10}, {}}}, fast{.borders = {{.bytes_per_s = 1e6}, {}}};
  EXPECT_EQ(cut_of(layers, 2), (Partition{{2, 2}}));
  EXPECT_EQ(cut_of(layers, 2, fast), (Partition{{2, 2}}));
  EXPECT_NE(cut_of(layers, 2, slow), (Partition{{2, 2}}));
  // 12 + 8 is beyond what counts as nearly equal.
  layers[1].forward.a_s = layers[2].forward.a_s = 2, layers[0].forward.a_s = layers[3].forward.a_s = 8;
  EXPECT_EQ(cut_of(layers, 2, slow), (Partition{{2, 2}}));
}

}  // namespace
}  // namespace sluice::tune
