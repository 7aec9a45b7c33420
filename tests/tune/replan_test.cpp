#include "tune/replan.h"

#include <gmock/gmock.h>

#include <functional>

#include "core/rng.h"
#include "tune/predict.h"

namespace sluice::tune {
namespace {

using testing::ElementsAre;

double no_time() { return 0; }

LayerCost layer(double ms) {
  LayerCost cost;
  cost.forward.b_s = ms * 1e-3;
  cost.input_gradient.b_s = ms * 1e-3;
  cost.weight_gradient.b_s = ms * 1e-3;
  return cost;
}

Replanned best(Replanner& replanner, const MeasuredStep& measured) {
  return replanner.plans_for(measured, no_time).with_any_cut;
}

Plan plan_of(std::vector<int> layers_per_stage, int replicas = 1) {
  return {.partition = {std::move(layers_per_stage)},
          .replicas = replicas,
          .chunks = 4,
          .global_batch = std::int64_t{4} * replicas};
}

// A step of these layers on devices with this slowness: [replica][device].
MeasuredStep measured(const Plan& plan, const std::vector<LayerCost>& layers,
                      const std::vector<std::vector<double>>& slowness) {
  MeasuredStep step{.plan = plan, .computing = slowness, .units = plan.global_batch};
  for (auto& of_replica : step.computing) {
    std::size_t first = 0;
    for (std::size_t stage = 0; stage < of_replica.size(); ++stage) {
      double seconds = 0;
      for (int i = 0; i < plan.partition.layers_per_stage[stage]; ++i)
        seconds += plan.chunks * layers[first++].seconds(1);
      of_replica[stage] *= seconds;
    }
  }
  return step;
}

double step_of(const Plan& plan, const std::vector<LayerCost>& layers, const std::vector<double>& slowness) {
  StepOverheads overheads;
  overheads.slowness = slowness;
  return predict_step(plan, layers, 4, overheads).seconds;
}

// The shortest step that any cut gives the slowest replica.
double least_step(const std::vector<LayerCost>& layers, const std::vector<std::vector<double>>& slowness) {
  double least = 1e9;
  const std::size_t stages = slowness.front().size();
  std::vector<int> cut;
  const std::function<void(int)> add_stage = [&](int left) {
    if (cut.size() + 1 == stages) {
      cut.push_back(left);
      double slowest = 0;
      for (const auto& of_replica : slowness) slowest = std::max(slowest, step_of(plan_of(cut), layers, of_replica));
      least = std::min(least, slowest);
      cut.pop_back();
      return;
    }
    for (int own = 1; own <= left - static_cast<int>(stages - cut.size() - 1); ++own) {
      cut.push_back(own);
      add_stage(left - own);
      cut.pop_back();
    }
  };
  add_stage(static_cast<int>(layers.size()));
  return least;
}

TEST(Replan, ASlowDeviceGetsFewerLayers) {
  const std::vector<LayerCost> layers(8, layer(5));
  Replanner replanner({.layers = layers});
  const auto found = best(replanner, measured(plan_of({4, 4}), layers, {{1, 3}}));
  EXPECT_THAT(found.plan.partition.layers_per_stage, ElementsAre(7, 1));
  EXPECT_NEAR(found.before_s, step_of(plan_of({4, 4}), layers, {1, 3}), 1e-12);
  EXPECT_NEAR(found.after_s, step_of(plan_of({7, 1}), layers, {1, 3}), 1e-12);
}

TEST(Replan, TheSlownessOfADeviceDoesNotDependOnItsLayers) {
  const std::vector<LayerCost> layers{layer(5), layer(1), layer(4), layer(2), layer(2), layer(7)};
  for (const std::vector<int>& cut : std::vector<std::vector<int>>{{1, 5}, {3, 3}, {5, 1}}) {
    Replanner replanner({.layers = layers});
    const auto found = best(replanner, measured(plan_of(cut), layers, {{2.5, 1}}));
    EXPECT_NEAR(found.after_s, least_step(layers, {{2.5, 1}}), 1e-12);
  }
}

TEST(Replan, NoCutOfOneReplicaIsFaster) {
  RngStream rng(8);
  for (int i = 0; i < 200; ++i) {
    std::vector<LayerCost> layers;
    for (std::uint64_t l = 4 + rng.below(5); l > 0; --l)
      layers.push_back(layer(1 + static_cast<double>(rng.below(10))));
    std::vector<double> slowness;
    for (std::uint64_t d = 2 + rng.below(2); d > 0; --d)
      slowness.push_back((i % 2 == 0 ? 1 : 0.1) * (1 + 0.5 * static_cast<double>(rng.below(6))));
    std::vector<int> cut(slowness.size(), 1);
    cut.back() = static_cast<int>(layers.size() - cut.size() + 1);
    Replanner replanner({.layers = layers});
    const auto found = best(replanner, measured(plan_of(cut), layers, {slowness}));
    EXPECT_NEAR(found.after_s, least_step(layers, {slowness}), 1e-9);
    EXPECT_NEAR(found.after_s, step_of(found.plan, layers, slowness), 1e-12);
  }
}

TEST(Replan, TheFirstCutReturnsWithEqualDevices) {
  const std::vector<LayerCost> layers(8, layer(5));
  Replanner replanner({.layers = layers, .preferred = plan_of({4, 4})});
  EXPECT_THAT(best(replanner, measured(plan_of({4, 4}), layers, {{1, 3}})).plan.partition.layers_per_stage,
              ElementsAre(7, 1));
  EXPECT_THAT(best(replanner, measured(plan_of({7, 1}), layers, {{1, 1}})).plan.partition.layers_per_stage,
              ElementsAre(4, 4));
}

TEST(Replan, AWhollySlowReplicaGetsFewerSamplesAndASlowDeviceFewerLayers) {
  const std::vector<LayerCost> layers(8, layer(5));
  const Plan plan = plan_of({4, 4}, 2);
  Replanner replanner({.layers = layers});
  const auto slow_replica = best(replanner, measured(plan, layers, {{1, 1}, {3, 3}})).plan;
  EXPECT_THAT(slow_replica.partition.layers_per_stage, ElementsAre(4, 4));
  EXPECT_THAT(slow_replica.shares, ElementsAre(6, 2));
  const auto slow_devices = best(replanner, measured(plan, layers, {{1, 3}, {1, 3}})).plan;
  EXPECT_THAT(slow_devices.partition.layers_per_stage, ElementsAre(7, 1));
  EXPECT_THAT(slow_devices.shares, testing::AnyOf(testing::IsEmpty(), ElementsAre(4, 4)));
}

TEST(Replan, TheFirstCutIsKeptIfAnotherIsHardlyFaster) {
  // {4, 4} is slower than {3, 5} by less than 2 %.
  const std::vector<LayerCost> layers{layer(5), layer(5), layer(5), layer(5.05),
                                      layer(5), layer(5), layer(5), layer(5)};
  const std::vector<std::vector<double>> equal{{1, 1.005}};
  for (const std::vector<int>& cut : std::vector<std::vector<int>>{{4, 4}, {3, 5}}) {
    Replanner free({.layers = layers}), bound({.layers = layers, .preferred = plan_of(cut)});
    const MeasuredStep step = measured(plan_of(cut), layers, equal);
    const Replanned other = best(free, step), kept = best(bound, step);
    const bool is_close = step_of(plan_of(cut), layers, equal[0]) < other.after_s * (1 + Replanner::kClearly);
    EXPECT_EQ(kept.plan.partition == Partition{cut}, is_close);
  }
}

TEST(Replan, TwoReplicasThatAreSlowInOtherPlacesShareACut) {
  const std::vector<LayerCost> layers(12, layer(5));
  Replanner replanner({.shares_change = false, .layers = layers});
  const std::vector<std::vector<double>> slowness{{1, 1, 2}, {2, 1, 1}};
  const auto found = best(replanner, measured(plan_of({4, 4, 4}, 2), layers, slowness));
  EXPECT_LT(found.after_s, 1.04 * least_step(layers, slowness)) << "{4, 4, 4} takes 1.21 times the least";
  EXPECT_LT(1.2 * least_step(layers, slowness), found.before_s);
}

TEST(Replan, AReplicaWithoutAShareDecidesNoCut) {
  const std::vector<LayerCost> layers(8, layer(5));
  Plan plan = plan_of({4, 4}, 2);
  plan.shares = {1, 0};
  MeasuredStep step = measured(plan, layers, {{2, 6}, {0, 0}});  // the first has twice its equal share
  Replanner replanner({.layers = layers});
  const auto found = replanner.plans_for(step, no_time);
  EXPECT_EQ(found.with_this_cut.plan.partition, plan.partition);
  EXPECT_THAT(found.with_any_cut.plan.partition.layers_per_stage, ElementsAre(7, 1));
}

TEST(Replan, AFixedShareStays) {
  const std::vector<LayerCost> layers(8, layer(5));
  Plan plan = plan_of({4, 4}, 2);
  plan.shares = {3, 1};
  MeasuredStep step = measured(plan, layers, {{1, 1}, {1, 1}});
  for (double& time : step.computing[0]) time *= 1.5;  // it has six of eight units
  for (double& time : step.computing[1]) time *= 0.5;
  Replanner fixed({.shares_change = false, .layers = layers});
  EXPECT_EQ(best(fixed, step).plan.shares, plan.shares);
  Replanner free({.layers = layers});
  EXPECT_THAT(best(free, step).plan.shares, ElementsAre(4, 4));
}

TEST(Replan, WithoutCostsOnlySharesChange) {
  Replanner replanner({});
  const MeasuredStep step{.plan = plan_of({4, 4}, 2), .computing = {{0.1, 0.2}, {0.1, 0.6}}, .units = 8};
  const auto found = best(replanner, step);
  EXPECT_EQ(found.plan.partition, step.plan.partition);
  EXPECT_THAT(found.plan.shares, ElementsAre(6, 2));
  EXPECT_THAT(replanner.slowness()[1], ElementsAre(1, testing::DoubleNear(6, 1e-9)));
  EXPECT_NEAR(found.before_s, 0.6, 1e-9);
  EXPECT_NEAR(found.after_s, 0.3, 1e-9);
}

TEST(Replan, AHopelessReplicaIsLeftOutAndTriedAgain) {
  Replanner replanner({});
  MeasuredStep step{.plan = plan_of({8}, 2), .computing = {{0.4}, {40}}, .units = 8};
  step.plan = best(replanner, step).plan;
  EXPECT_THAT(step.plan.shares, ElementsAre(8, 0));
  step.computing = {{0.8}, {1e-9}};
  EXPECT_EQ(best(replanner, step).plan.shares, step.plan.shares) << "it is as slow as it last was";
  const auto trial = replanner.trial_plan(step);
  EXPECT_THAT(trial.plan.shares, ElementsAre(7, 1));
  EXPECT_NEAR(trial.before_s, 0.8, 1e-9);
  EXPECT_NEAR(trial.after_s, 10, 1e-9);
  step.plan = trial.plan;
  step.computing = {{0.7}, {0.1}};
  EXPECT_THAT(best(replanner, step).plan.shares, ElementsAre(4, 4));
}

TEST(Replan, WorkRatiosFollowTheLayers) {
  const Replanner replanner({.layers = std::vector<LayerCost>(8, layer(5))});
  const auto ratios = replanner.work_ratios(plan_of({4, 4}), plan_of({6, 2}), 4);
  EXPECT_THAT(ratios, ElementsAre(testing::DoubleNear(1.5, 1e-12), testing::DoubleNear(0.5, 1e-12)));
  EXPECT_THAT(Replanner({}).work_ratios(plan_of({4, 4}), plan_of({6, 2}), 4), ElementsAre(1, 1));
}

}  // namespace
}  // namespace sluice::tune
