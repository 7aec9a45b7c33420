// predict_cluster() against closed forms. p devices a replica, m chunks, R replicas, t of a stage and micro-batch.
#include "tune/cluster.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <functional>
#include <limits>
#include <string>

#include "core/error.h"
#include "core/rng.h"
#include "tune/cluster_runs.h"
#include "tune/expected_maximum.h"

namespace sluice::tune {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;

TEST(Cluster, ScalesPerfectlyWhereNothingIsLost) {
  for (const Scaling scaling : {Scaling::kWeak, Scaling::kStrong}) {
    ClusterRun run = cluster_run(alike_layers(3, 0.5), 1, 64, 8);
    run.scaling = scaling;
    const ClusterPrediction found = predict_cluster(run, std::vector{1, 2, 16, 64});
    EXPECT_NEAR(found.one_device_per_s, 1 / 1.5, 1e-12);
    for (const ClusterStep& step : found.steps) {
      EXPECT_NEAR(step.samples_per_s(), step.devices / 1.5, 1e-9);
      EXPECT_NEAR(step.efficiency, 1, 1e-12);
      EXPECT_NEAR(step.efficiency_to_smallest, 1, 1e-12);
      EXPECT_EQ(step.replicas, step.devices);
      EXPECT_EQ(step.chunks, scaling == Scaling::kWeak ? 64 : 64 / step.devices);
      EXPECT_NEAR(step.samples, scaling == Scaling::kWeak ? 128 * step.devices : 128, 1e-9);
    }
  }
}

TEST(Cluster, StrongScalingFallsToTheBubbleOfFewChunks) {
  for (const std::string schedule : {"1f1b", "gpipe"}) {
    ClusterRun run = cluster_run(alike_layers(8, 0.5), 4, 64, 4);
    run.scaling = Scaling::kStrong;
    run.request.plan.schedule = schedule;
    for (const ClusterStep& step : predict_cluster(run, std::vector{4, 8, 32, 64, 256}).steps) {
      const double m = 64.0 / step.replicas, p = 4;
      EXPECT_EQ(step.chunks, m);
      EXPECT_NEAR(step.efficiency, m / (m + p - 1), 1e-12);
      EXPECT_NEAR(step.bubble / step.seconds, (p - 1) / (m + p - 1), 1e-12);
      EXPECT_NEAR(step.efficiency_to_smallest, m / (m + p - 1) / (64 / (64 + p - 1)), 1e-12);
    }
  }
}

TEST(Cluster, WeakScalingWaitsForTheSlowestReplica) {
  ClusterRun run = cluster_run(alike_layers(4, 1), 2, 8, 8);
  run.cluster.noise = 0.05;
  for (const ClusterStep& step : predict_cluster(run, std::vector{2, 4, 20, 200, 2000}).steps) {
    const double late = 1 + 0.05 * expected_maximum(step.replicas);
    EXPECT_NEAR(step.efficiency_to_smallest, 1 / late, 1e-12);
    EXPECT_NEAR(step.efficiency, 8.0 / 9 / late, 1e-12) << "and the bubble of 2 stages, 8 chunks";
    EXPECT_NEAR(step.stragglers, step.seconds * (1 - 1 / late), 1e-9);
  }
  EXPECT_NEAR(one_step(run, 200).efficiency_to_smallest, 1, 1e-12) << "against itself";
}

TEST(Cluster, OfOneNodeIsPredictStepItself) {
  RngStream rng(hash_name("cluster"));
  for (int round = 0; round < 20; ++round) {
    ClusterRun run = cluster_run(alike_layers(6, 0.1 + rng.uniform(), 1000, 300), 2, 4, 8);
    run.cluster.inside = {.latency_s = rng.uniform(), .bytes_per_s = 100 + 1000 * rng.uniform()};
    run.cluster.between = {.latency_s = 1e9, .bytes_per_s = 1};
    run.overheads = {.bucket_bytes = 700, .sent_share = 0.5, .update = AffineCost{.a_s = 0.1, .b_s = 1e-4}};
    const ClusterPrediction found = predict_cluster(run, std::vector{8});
    StepOverheads overheads = run.overheads;
    overheads.borders = {run.cluster.inside, {}};
    overheads.all_reduce = ring_cost(4, run.cluster.inside);
    const StepPrediction step = predict_step(found.plan, run.layers, 8, overheads);
    EXPECT_NEAR(found.steps[0].seconds, step.seconds, 1e-9);
    EXPECT_NEAR(found.steps[0].all_reduce, step.all_reduce, 1e-9);
    EXPECT_NEAR(sum_of_parts(found.steps[0]), step.seconds, 1e-9);
    EXPECT_EQ(found.steps[0].nodes, 1);
  }
}

// GPipe. Each of p stages sums B bytes over two nodes: A seconds alone. Stage 0 is whole at the end, stage 1 a backward
// sooner. Both leave through the link of one node.
TEST(Cluster, StagesOfANodeShareItsLink) {
  const double backward = 2 * 2 * 1.0, sum = 10;
  for (const int devices : {2, 4, 6}) {
    ClusterRun run = cluster_run(alike_layers(devices, 3, 100), devices, 5, 2);
    run.request.plan.schedule = "gpipe";
    run.cluster.between = {.bytes_per_s = 100 / sum};
    const ClusterStep step = one_step(run, 2 * devices);
    EXPECT_NEAR(step.all_reduce, 2 * sum - backward, 1e-9);
    run.cluster.devices_per_node = 1;  // each has a link of its own
    EXPECT_NEAR(one_step(run, 2 * devices).all_reduce, sum, 1e-9);
  }
}

// One chunk passes each border once in each direction.
TEST(Cluster, TheReplicaWithMostBordersBetweenNodesCounts) {
  ClusterRun run = cluster_run(alike_layers(3, 1, 0, 50), 3, 1, 4);
  run.cluster.inside = {.latency_s = 1, .bytes_per_s = 100};
  run.cluster.between = {.latency_s = 5, .bytes_per_s = 10};
  EXPECT_NEAR(one_step(run, 3).borders, 4 * (1 + 1), 1e-9);
  // Of four replicas in three nodes the second and the third leave a node, each once.
  EXPECT_NEAR(one_step(run, 12).borders, 2 * (1 + 1) + 2 * (5 + 10), 1e-9);
  EXPECT_NEAR(one_step(run, 12).exposed_communication(), one_step(run, 12).borders, 1e-9);
  run.cluster.devices_per_node = 1;
  EXPECT_NEAR(one_step(run, 3).borders, 4 * (5 + 10), 1e-9);
}

TEST(Cluster, DevicesSlowDownThoseOfTheirNodeOnly) {
  std::vector<LayerCost> layers = alike_layers(1, 1);
  layers[0].slowdown = 1.5;
  ClusterRun run = cluster_run(layers, 1, 4, 4);
  run.overheads.contenders = 4;
  EXPECT_NEAR(one_step(run, 1).seconds, 8, 1e-9);
  EXPECT_NEAR(one_step(run, 4).seconds, 8 * 1.5, 1e-9);
  EXPECT_NEAR(one_step(run, 40).seconds, 8 * 1.5, 1e-9);
  run.cluster.devices_per_node = 1;
  EXPECT_NEAR(one_step(run, 40).seconds, 8, 1e-9);
}

// Replicas of one memory share an update; a device alone has nobody to share it with.
TEST(Cluster, OneDeviceUpdatesAllWeightsItself) {
  ClusterRun run = cluster_run(alike_layers(3, 1, 1000), 1, 4, 4);
  run.overheads.update = AffineCost{.b_s = 1e-3};
  run.overheads.updaters = 2;
  // 4 chunks of 2 samples through 3 layers, and 3000 bytes.
  EXPECT_NEAR(predict_cluster(run, std::vector{1}).one_device_per_s, 8 / (8 * 3.0 + 3), 1e-12);
}

TEST(Cluster, FrozenLayersRunOnAllDevices) {
  ClusterRun run = cluster_run(alike_layers(6, 3), 2, 4, 2);
  run.request.plan.frozen_layers = 4;
  // 8 samples: 4 forwards over two devices; then 4 chunks of 2 samples through stages of a layer each.
  EXPECT_NEAR(one_step(run, 4).seconds, 8 * 4 * 1.0 / 2 + (4 + 1) * 6, 1e-9);
  EXPECT_NEAR(predict_cluster(run, std::vector{4}).one_device_per_s, 1 / (4 * 1.0 + 2 * 3), 1e-9);
}

// A run of any shape, with its cut given.
ClusterRun any_run(RngStream& rng) {
  const int devices = 1 + static_cast<int>(rng.below(7)), layers = devices + static_cast<int>(rng.below(4));
  ClusterRun run = cluster_run(alike_layers(layers, 1), devices, 8, 1 + static_cast<int>(rng.below(5)));
  for (LayerCost& layer : run.layers) {
    layer.forward.b_s = rng.uniform(), layer.weight_gradient.b_s = rng.uniform();
    layer.gradient_bytes = layer.parameter_bytes = rng.below(1000);
    layer.output_bytes = rng.below(100);
  }
  run.request.partition = Partition{std::vector(devices, 1)};
  run.request.partition->layers_per_stage.back() += layers - devices;
  run.cluster.inside = {.latency_s = 0.2 * rng.uniform(), .bytes_per_s = 100 + 500 * rng.uniform()};
  run.cluster.between = {.latency_s = rng.uniform(), .bytes_per_s = 10 + 200 * rng.uniform()};
  run.cluster.noise = 0.1 * rng.uniform();
  run.overheads = {.bucket_bytes = rng.below(2) == 0 ? 0 : 1000 * rng.uniform(), .update = AffineCost{0.1, 1e-3}};
  run.scaling = rng.below(2) == 0 ? Scaling::kWeak : Scaling::kStrong;
  return run;
}

// Several buckets a stage take turns on a network as they become ready: another order may happen to be better.
TEST(Cluster, IsNoFasterWithLessBandwidthMoreLatencyOrMoreNoise) {
  RngStream rng(hash_name("monotone"));
  const std::vector<std::function<void(Cluster&)>> worse{[](Cluster& cluster) { *cluster.inside.bytes_per_s *= 0.7; },
                                                         [](Cluster& cluster) { *cluster.between.bytes_per_s *= 0.7; },
                                                         [](Cluster& cluster) { cluster.inside.latency_s *= 1.3; },
                                                         [](Cluster& cluster) { cluster.between.latency_s *= 1.3; },
                                                         [](Cluster& cluster) { cluster.noise *= 1.3; }};
  for (int round = 0; round < 300; ++round) {
    const ClusterRun run = any_run(rng);
    const int devices = run.request.devices * (1 + static_cast<int>(rng.below(8)));
    const ClusterStep step = one_step(run, devices);
    const double slack = run.overheads.bucket_bytes > 0 ? 0.05 : 1e-9;
    EXPECT_NEAR(sum_of_parts(step), step.seconds, 1e-9 * step.seconds);
    EXPECT_LE(step.efficiency, 1 + 1e-9);
    EXPECT_GE(step.borders, -1e-9);
    for (std::size_t i = 0; i < worse.size(); ++i) {
      ClusterRun other = run;
      worse[i](other.cluster);
      EXPECT_GE(one_step(other, devices).seconds, step.seconds * (1 - slack)) << "round " << round << ", change " << i;
    }
  }
}

TEST(Cluster, TheCutIsMadeOnceForAllDevices) {
  std::vector<LayerCost> layers = alike_layers(4, 1);
  layers[0].forward.b_s = 2;
  const ClusterRun run = cluster_run(layers, 2, 8, 8);  // 8 / 3 a sample, and 3 times 1
  EXPECT_THAT(predict_cluster(run, std::vector{2, 16}).plan.partition.layers_per_stage, ElementsAre(1, 3));
  ClusterRun given = run;
  given.request.partition = Partition{{2, 2}};
  EXPECT_THAT(predict_cluster(given, std::vector{2}).plan.partition.layers_per_stage, ElementsAre(2, 2));
}

TEST(Cluster, SaysInASentenceWhatCannotBe) {
  static constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  const ClusterRun good = cluster_run(alike_layers(4, 1, 10), 2, 4, 8);
  const auto expect = [&](const std::string& text, const std::function<void(ClusterRun&)>& spoil, int devices = 4) {
    ClusterRun run = good;
    spoil(run);
    EXPECT_THAT([&] { static_cast<void>(one_step(run, devices)); }, ThrowsMessage<ConfigError>(HasSubstr(text)));
  };
  const auto nothing = [](ClusterRun&) {};
  expect("a cluster of 5 devices cannot be divided into replicas of 2", nothing, 5);
  expect("a cluster of 0 devices", nothing, 0);
  expect("the pipeline has 5 stages, but only 4 layers to train", [](auto& run) { run.request.devices = 5; });
  expect("4 of 4 layers are frozen", [](auto& run) { run.request.plan.frozen_layers = 4; });
  expect("the bandwidth of the link between nodes is 0", [](auto& run) { run.cluster.between.bytes_per_s = 0; });
  expect("the bandwidth of the link inside a node is nan", [](auto& run) { run.cluster.inside.bytes_per_s = kNan; });
  expect("the latency of the link inside a node is -1", [](auto& run) { run.cluster.inside.latency_s = -1; });
  expect("the noise of a step is nan", [](auto& run) { run.cluster.noise = kNan; });
  expect("a node has 0 devices", [](auto& run) { run.cluster.devices_per_node = 0; });
  expect("layer 2 takes nan s", [](auto& run) { run.layers[2].forward.b_s = kNan; });
  expect("the layers take no time", [](auto& run) { run.layers = std::vector<LayerCost>(4); });
  expect("costs of 3 layers, but the model has 4", [](auto& run) { run.layers.pop_back(); });
  expect("each number must be at least 1", [](auto& run) { run.request.plan.chunks = 0; });
  expect("less than a sample", [](auto& run) { run.request.plan.global_batch = 3; });
  expect("the partition must have 2 stages of 4 layers", [](auto& run) { run.request.partition = Partition{{1, 1}}; });
  expect("the partition must have 2 stages", [](auto& run) { run.request.partition = Partition{}; });
  expect("each must be 0 or more", [](auto& run) { run.overheads.bucket_bytes = kNan; });
  expect("an update takes nan s", [](auto& run) { run.overheads.update = AffineCost{.a_s = kNan}; });
  expect("schedule", [](auto& run) { run.request.plan.schedule = "none"; });
  expect(
      "a global batch of 8 has no sample for each of 1 chunks of 16 replicas",
      [](auto& run) { run.scaling = Scaling::kStrong; }, 32);
  expect("are more than 10000000 devices",
         [](auto& run) { run.request.replicas = 2'000'000'000, run.request.plan.global_batch = 1LL << 40; });
  expect("has 8000000 chunks, too many to predict", [](auto& run) {
    run.scaling = Scaling::kStrong;
    run.request.replicas = 4'000'000, run.request.plan.global_batch = 16'000'000;
  });
  EXPECT_THROW(static_cast<void>(predict_cluster(good, {})), ConfigError);
}

// 100 layers in 50 stages, 64 chunks, up to 200 replicas. How long that takes is printed only.
TEST(Cluster, OfTenThousandDevicesIsPredicted) {
  std::vector<int> totals;
  for (const int replicas : {1, 2, 5, 10, 20, 50, 100, 200}) totals.push_back(50 * replicas);
  for (const Scaling scaling : {Scaling::kWeak, Scaling::kStrong}) {
    ClusterRun run = cluster_run(alike_layers(100, 1e-3, 200'000'000, 4'000'000), 50, 64, 8);
    run.cluster.inside = {.latency_s = 5e-6, .bytes_per_s = 200e9};
    run.cluster.between = {.latency_s = 10e-6, .bytes_per_s = 50e9};
    run.cluster.noise = 0.02;
    run.overheads.bucket_bytes = 25 * 1024 * 1024;
    run.scaling = scaling;
    if (scaling == Scaling::kStrong) run.request.replicas = 200, run.request.plan.global_batch *= 200;
    const auto start = std::chrono::steady_clock::now();
    const ClusterPrediction found = predict_cluster(run, totals);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    for (const ClusterStep& step : found.steps) {
      std::printf(
          "%s %5d devices %4d nodes %5d chunks: %.4f s, %.0f samples/s, efficiency %.3f, bubble %.3f, borders %.4f,"
          " all-reduce %.4f, stragglers %.4f\n",
          scaling == Scaling::kWeak ? "weak" : "strong", step.devices, step.nodes, step.chunks, step.seconds,
          step.samples_per_s(), step.efficiency, step.bubble / step.seconds, step.borders, step.all_reduce,
          step.stragglers);
      EXPECT_NEAR(sum_of_parts(step), step.seconds, 1e-9);
      EXPECT_LT(step.efficiency, 1);
    }
    std::printf("%zu clusters in %.2f s\n", totals.size(), took.count());
    EXPECT_EQ(found.steps.back().nodes, 1250);
    EXPECT_EQ(found.steps.back().chunks, 64);
  }
}

}  // namespace
}  // namespace sluice::tune
