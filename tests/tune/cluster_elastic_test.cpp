#include "tune/cluster_elastic.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>

#include "core/error.h"
#include "core/rng.h"
#include "tune/cluster_runs.h"

namespace sluice::tune {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;

template <typename Member>
std::vector<int> column(const std::vector<ElasticEpoch>& epochs, Member member) {
  std::vector<int> values;
  for (const ElasticEpoch& epoch : epochs) values.push_back(epoch.*member);
  return values;
}

// As many replicas as nodes, one in each.
ClusterRun run_on_nodes(ClusterRun run, int nodes) {
  run.request.replicas = nodes;
  run.request.plan.global_batch *= nodes;
  return run;
}

TEST(ElasticEpochs, ShrinkAndReplicateAsLayersFreeze) {
  ClusterRun run = run_on_nodes(cluster_run(alike_layers(8, 3), 4, 4, 4), 2);
  run.scaling = Scaling::kStrong;
  const auto epochs = elastic_epochs(run, std::vector{0, 4, 6, 7}, {});
  EXPECT_THAT(column(epochs, &ElasticEpoch::frozen_layers), ElementsAre(0, 4, 6, 7));
  // Free links: replicas of one device have no bubble, and nothing speaks for more.
  EXPECT_EQ(epochs[3].devices, 1);
  EXPECT_EQ(epochs[3].replicas, 8);
  // 16 samples over 8 devices: 7 forwards of a second and the whole of the last layer.
  EXPECT_NEAR(epochs[3].seconds, 2 * (7 + 3), 1e-9);
  for (const ElasticEpoch& epoch : epochs) EXPECT_NEAR(epoch.samples_per_s, 16 / epoch.seconds, 1e-9);
  // Of four devices that have two layers each: the samples of a replica fill and drain them.
  EXPECT_EQ(epochs[0].devices, 4);
  EXPECT_EQ(epochs[0].replicas, 2);
  EXPECT_NEAR(epochs[0].seconds, (4 + 3) * 6.0 * 2, 1e-9);
  EXPECT_NEAR(epochs[0].speedup, 1, 1e-12);
}

// Replicas of one device would be faster from the first epoch on, but that is no merit of freezing.
TEST(ElasticEpochs, AreTheBaselineUntilLayersFreeze) {
  ClusterRun run = run_on_nodes(cluster_run(alike_layers(8, 3), 4, 4, 4), 2);
  for (const Scaling scaling : {Scaling::kStrong, Scaling::kWeak}) {
    run.scaling = scaling;
    for (const ElasticRow& row : elastic_table(run, std::vector{0, 0, 0})) {
      EXPECT_DOUBLE_EQ(row.speedup, 1) << row.name;
      EXPECT_THAT(column(row.epochs, &ElasticEpoch::devices), testing::Each(4)) << row.name;
    }
    const ElasticRow with_replicas = elastic_table(run, std::vector{0, 0, 6, 6}).at(3);
    EXPECT_THAT(column(with_replicas.epochs, &ElasticEpoch::devices), ElementsAre(4, 4, 1, 1));
    EXPECT_DOUBLE_EQ(with_replicas.epochs[1].speedup, 1);
  }
}

// What elastic_plan() decides with one cost for all sums: nothing.
TEST(ElasticEpochs, HaveElasticPlansShapesWhereLinksAreFree) {
  RngStream rng(hash_name("elastic epochs"));
  for (int round = 0; round < 30; ++round) {
    const int devices = 1 + static_cast<int>(rng.below(4));
    ClusterRun run = run_on_nodes(cluster_run(alike_layers(8, 1), devices, 4, devices), 2);
    for (LayerCost& layer : run.layers) layer.forward.b_s = 0.1 + rng.uniform();
    run.scaling = Scaling::kStrong;
    const int frozen = 1 + static_cast<int>(rng.below(7));
    const ElasticPlan plan = elastic_plan(run.request, frozen, run.layers, run.overheads, {});
    const ElasticEpoch epoch = elastic_epochs(run, std::vector{frozen}, {}).at(0);
    EXPECT_EQ(epoch.devices, plan.plan.devices());
    EXPECT_EQ(epoch.replicas, 2 * plan.plan.replicas);
    EXPECT_EQ(epoch.chunks, plan.plan.chunks);
    EXPECT_NEAR(epoch.seconds, plan.predicted_s, 1e-9);
  }
}

TEST(ElasticEpochs, StayWhereAChangeIsNotWonBack) {
  ClusterRun run = run_on_nodes(cluster_run(alike_layers(8, 3), 4, 4, 4), 2);
  run.scaling = Scaling::kStrong;
  const auto devices = [&](const ElasticRules& rules) {
    return column(elastic_epochs(run, std::vector{0, 6, 0}, rules), &ElasticEpoch::devices);
  };
  EXPECT_THAT(devices({.change_s = 1e6, .steps = 10}), ElementsAre(4, 2, 2)) << "two layers make no four stages";
  EXPECT_THAT(devices({.change_s = 1, .steps = 10}), ElementsAre(4, 1, 1));
  EXPECT_THAT(devices({.may_shrink = false}), ElementsAre(4, 2, 2));
}

TEST(ElasticEpochs, TakeOnlyShapesThatHaveRoom) {
  ClusterRun run = run_on_nodes(cluster_run(alike_layers(8, 3, 100), 4, 4, 4), 2);
  const auto devices = [&] { return column(elastic_epochs(run, std::vector{0, 4, 6}, {}), &ElasticEpoch::devices); };
  EXPECT_THAT(devices(), ElementsAre(4, 1, 1));
  run.request.memory_limit = 1100;  // 2 x 100 of a trained layer, 100 of a frozen one
  EXPECT_EQ(devices().back(), 1);
  EXPECT_GT(devices()[1], 1);
  run.request.memory_limit = 10;
  const ElasticEpoch epoch = elastic_epochs(run, std::vector{4}, {}).at(0);
  EXPECT_FALSE(epoch.fits);
  EXPECT_EQ(epoch.devices, 4) << "tried as it is";
}

// ViT-B/16 as they ran it: an embedding, twelve blocks in halves, a head; 16 chunks of 25 samples a pipeline, which
// stay as replicas are added. 16 GB a device, of which a sample takes so much in each half of a block.
ClusterRun pipetransformer_run() {
  std::vector<LayerCost> layers{alike_layers(1, 1e-4, 2'970'624, 605'184).front()};
  for (int block = 0; block < 12; ++block) {
    layers.push_back(alike_layers(1, 3.5e-4, 9'455'616, 605'184).front());
    layers.back().saved_bytes.per_sample = 8'000'000;
    layers.push_back(alike_layers(1, 6e-4, 18'895'872, 605'184).front());
    layers.back().saved_bytes.per_sample = 10'000'000;
  }
  layers.push_back(alike_layers(1, 1e-5, 3'076'000).front());
  return {.request = {.plan = {.chunks = 16, .global_batch = 800, .schedule = "gpipe"},
                      .devices = 8,
                      .replicas = 2,
                      .layers = 26,
                      .memory_limit = 16'000'000'000},
          .layers = layers,
          .overheads = {.bucket_bytes = 25 << 20},
          .cluster = {.devices_per_node = 8,
                      .inside = {.bytes_per_s = 15.754e9},  // PCIe 3.0 x16
                      .between = {.bytes_per_s = 5e9}}};
}

TEST(ElasticTable, HasTheRowsOfPipeTransformer) {
  // 12 (1 - (2/3)^T) blocks in epoch T, rounded up, each of two layers, and the embedding.
  const std::vector<int> frozen{0, 9, 15, 19, 21, 23, 23, 25, 25, 25};
  ClusterRun run = pipetransformer_run();
  for (const double frozen_share : {1.0, 0.0}) {
    run.overheads.frozen_share = frozen_share;
    const auto rows = elastic_table(run, frozen);
    ASSERT_EQ(rows.size(), 4U);
    for (const ElasticRow& row : rows) {
      std::printf("%-16s x%.2f:", row.name.c_str(), row.speedup);
      for (const ElasticEpoch& epoch : row.epochs)
        std::printf(" %dx%d %.0f/s", epoch.devices, epoch.replicas, epoch.samples_per_s);
      std::printf("\n");
    }
    EXPECT_EQ(rows[0].name, "baseline");
    EXPECT_NEAR(rows[0].speedup, 1, 1e-12);
    EXPECT_THAT(column(rows[0].epochs, &ElasticEpoch::devices), testing::Each(8));
    EXPECT_EQ(rows[1].name, "freeze only");
    EXPECT_EQ(rows[2].name, "elastic pipeline");
    EXPECT_THAT(column(rows[2].epochs, &ElasticEpoch::replicas), testing::Each(2));
    EXPECT_EQ(rows[3].name, "with AutoDP");
    for (std::size_t i = 2; i < rows.size(); ++i) EXPECT_GE(rows[i].speedup, rows[i - 1].speedup - 1e-9);
    for (const ElasticRow& row : rows)
      for (const ElasticEpoch& epoch : row.epochs) EXPECT_LE(epoch.devices * epoch.replicas, 16);
  }
}

TEST(ElasticEpochs, SayInASentenceWhatCannotBe) {
  const ClusterRun good = run_on_nodes(cluster_run(alike_layers(8, 3), 4, 4, 4), 2);
  const auto expect = [](const std::string& text, const ClusterRun& run, int frozen = 0) {
    EXPECT_THAT([&] { static_cast<void>(elastic_epochs(run, std::vector{frozen}, {})); },
                ThrowsMessage<ConfigError>(HasSubstr(text)));
  };
  expect("8 of 8 layers are frozen in an epoch", good, 8);
  expect("-1 of 8 layers", good, -1);
  ClusterRun run = good;
  run.cluster.devices_per_node = 3;
  expect("nodes of 3 devices cannot hold 2 replicas of 4 devices with 1 on each node", run);
  run = good;
  run.cluster.between.bytes_per_s = 0;
  expect("the bandwidth of the link between nodes is 0", run);
  run = good;
  run.request.plan.schedule = "none";
  expect("no pipeline of up to 4 devices can run the schedule none", run);
  EXPECT_TRUE(elastic_epochs(good, {}, {}).empty());
}

}  // namespace
}  // namespace sluice::tune
