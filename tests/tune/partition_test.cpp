#include "tune/partition.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <numeric>

#include "core/error.h"
#include "core/rng.h"
#include "pipeline/schedule/generators.h"

namespace sluice::tune {
namespace {

constexpr double kMicroBatch = 4;

// That take so long at kMicroBatch.
std::vector<LayerCost> costs_of(const std::vector<double>& seconds) {
  std::vector<LayerCost> costs;
  for (const double s : seconds) {
    costs.push_back({.forward = {.a_s = s / 12, .b_s = s / 16},
                     .input_gradient = {.a_s = s / 4},
                     .weight_gradient = {.b_s = s * 5 / 48}});
  }
  return costs;
}

// With one stage a device and no memory to keep to.
Partition flat_cut(std::span<const LayerCost> costs, double micro_batch, int stages) {
  const auto schedule = pipeline::make_schedule("1f1b", {.stages = stages, .micro_batches = stages});
  return best_cut(costs, schedule, {.micro_batch = micro_batch}).partition;
}

double slowest(std::span<const LayerCost> costs, const Partition& partition) {
  const auto times = stage_times(costs, kMicroBatch, partition);
  return *std::max_element(times.begin(), times.end());
}

// Every way to cut `layers` into `stages`.
double brute_force(std::span<const LayerCost> costs, int stages) {
  double best = 1e300;
  std::vector<int> counts;
  const std::function<void(int)> place = [&](int left) {
    if (static_cast<int>(counts.size()) == stages - 1) {
      counts.push_back(left);
      best = std::min(best, slowest(costs, {counts}));
      counts.pop_back();
      return;
    }
    for (int count = 1; count <= left - (stages - 1 - static_cast<int>(counts.size())); ++count) {
      counts.push_back(count);
      place(left - count);
      counts.pop_back();
    }
  };
  place(static_cast<int>(costs.size()));
  return best;
}

TEST(FlatCut, IsAsGoodAsTryingEveryCut) {
  RngStream rng(5);
  for (int round = 0; round < 200; ++round) {
    const int layers = 1 + static_cast<int>(rng.below(9));
    const int stages = 1 + static_cast<int>(rng.below(layers));
    std::vector<double> seconds(layers);
    for (double& s : seconds) s = rng.uniform();
    const auto costs = costs_of(seconds);
    const Partition partition = flat_cut(costs, kMicroBatch, stages);
    ASSERT_EQ(partition.layers_per_stage.size(), static_cast<std::size_t>(stages));
    EXPECT_EQ(std::accumulate(partition.layers_per_stage.begin(), partition.layers_per_stage.end(), 0), layers);
    EXPECT_GE(*std::min_element(partition.layers_per_stage.begin(), partition.layers_per_stage.end()), 1);
    EXPECT_NEAR(slowest(costs, partition), brute_force(costs, stages), 1e-12);
  }
}

TEST(FlatCut, AmongEquallyFastCutsTakesTheEvenOne) {
  // The slowest stage is 4 whatever happens to the ones.
  EXPECT_EQ(flat_cut(costs_of({4, 1, 1, 1, 1}), kMicroBatch, 3), (Partition{{1, 2, 2}}));
}

TEST(FlatCut, MoreStagesThanLayersIsOurBug) {
  EXPECT_THROW(static_cast<void>(flat_cut(costs_of({1}), kMicroBatch, 2)), BugError);
}

// Layers of 2 s forward and 3 s backward a micro-batch; one that is recomputed goes forward twice.
TEST(DeviceTimes, AreOfAllItsStagesWithWhatTheyRecompute) {
  const std::vector<LayerCost> costs(4, {.forward = {.a_s = 1, .b_s = 1}, .input_gradient = {.a_s = 3}});
  Plan plan{.partition = {{1, 1, 1, 1}}, .chunks = 4, .schedule = "zb-v", .virtual_stages = 2};  // devices 0 1 1 0
  EXPECT_EQ(device_times(costs, 1, plan), (std::vector<double>{10, 10}));
  plan.recompute = {true, false, false, false};
  EXPECT_EQ(device_times(costs, 1, plan), (std::vector<double>{12, 10}));
  plan.recompute = {false, true, true, false};
  EXPECT_EQ(device_times(costs, 1, plan), (std::vector<double>{10, 14}));
}

TEST(FlatCut, TheBestCutDependsOnTheSizeOfAMicroBatch) {
  // Small micro-batches: the first layer's fixed part outweighs the others; large ones: the last layer's samples do.
  const std::vector<LayerCost> costs{
      {.forward = {.a_s = 10, .b_s = 1}}, {.forward = {.a_s = 1, .b_s = 1}}, {.forward = {.a_s = 1, .b_s = 4}}};
  EXPECT_EQ(flat_cut(costs, 1, 2), (Partition{{1, 2}}));
  EXPECT_EQ(flat_cut(costs, 100, 2), (Partition{{2, 1}}));
  EXPECT_EQ(stage_times(costs, 100, {{2, 1}}), (std::vector<double>{211, 401}));
}

// PipeTransformer's example: ViT-B/16 for 10 classes over 8 devices by parameters, in half blocks. Its greedy cut
// {4, 2, 3, 3, 3, 3, 4, 5} has a largest stage of 14.18 million, 1.32 times the mean (logged by its authors).
TEST(Partition, IsMoreEvenThanThePublishedOneOfAVisionTransformer) {
  std::vector<double> millions{0.742656};
  for (int block = 0; block < 12; ++block) millions.insert(millions.end(), {2.363904, 4.723968});
  millions.back() += 0.001536;  // the last norm
  millions.back() += 0.00769;   // the head
  const auto costs = costs_of(millions);
  EXPECT_NEAR(slowest(costs, {{4, 2, 3, 3, 3, 3, 4, 3}}), 14.175744, 1e-6) << "theirs, norm and head in one unit";
  const Partition cut = flat_cut(costs, kMicroBatch, 8);
  EXPECT_NEAR(slowest(costs, cut), brute_force(costs, 8), 1e-9);
  EXPECT_NEAR(slowest(costs, cut), 11.8, 0.03);
}

}  // namespace
}  // namespace sluice::tune
