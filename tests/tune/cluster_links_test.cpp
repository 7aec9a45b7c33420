#include "tune/cluster_links.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <numeric>

namespace sluice::tune {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

TEST(ClusterLinks, ARingHasTwiceItsMembersLessOneMessages) {
  const LinkCost link{.latency_s = 0.25, .bytes_per_s = 100};
  for (const int n : {2, 3, 8, 1000}) {
    const LinkCost ring = ring_cost(n, link);
    EXPECT_DOUBLE_EQ(ring.latency_s, 2 * (n - 1) * 0.25);
    EXPECT_NEAR(ring.transfer(700), 2.0 * (n - 1) / n * 700 / 100, 1e-9);
  }
  EXPECT_EQ(ring_cost(1, link).at(700), 0);
  EXPECT_EQ(ring_cost(4, {.latency_s = 1}).at(700), 6) << "bytes that are not copied";
  EXPECT_EQ(ring_cost(4, {.bytes_per_s = std::numeric_limits<double>::infinity()}).at(700), 0);
}

TEST(ClusterLinks, ASumGoesOverTheReplicasInsideAndThenOverTheNodes) {
  const Cluster cluster{.devices_per_node = 4, .inside = {0.5, 100}, .between = {2, 10}};
  const auto cost = [&](int devices, int replicas) {
    return sum_cost({devices, replicas, cluster.devices_per_node}, cluster);
  };
  EXPECT_FALSE(cost(2, 1));
  EXPECT_NEAR(cost(1, 4)->at(80), ring_cost(4, cluster.inside).at(80), 1e-9) << "one node";
  EXPECT_NEAR(cost(1, 12)->at(80), ring_cost(4, cluster.inside).at(80) + ring_cost(3, cluster.between).at(80), 1e-9);
  EXPECT_NEAR(cost(2, 6)->at(80), ring_cost(2, cluster.inside).at(80) + ring_cost(3, cluster.between).at(80), 1e-9);
  EXPECT_NEAR(cost(4, 3)->at(80), ring_cost(3, cluster.between).at(80), 1e-9);
  EXPECT_NEAR(cost(8, 3)->at(80), ring_cost(3, cluster.between).at(80), 1e-9) << "each stage is in three nodes";
  // By hand: 2 x 2 devices. 1 message of a half out and one in, twice; then the same over the nodes.
  const Cluster small{.devices_per_node = 2, .inside = {0.5, 100}, .between = {2, 10}};
  EXPECT_NEAR(sum_cost({1, 4, 2}, small)->at(80), 2 * (0.5 + 0.4) + 2 * (2 + 4.0), 1e-9);
}

TEST(ClusterLinks, BordersLeaveANodeWhereItEnds) {
  const Cluster cluster{.devices_per_node = 2, .inside = {1, 100}, .between = {2, 10}};
  const auto latencies = [&](const std::vector<int>& owners, int offset) {
    std::vector<double> found;
    for (const LinkCost& border : border_costs(owners, offset, cluster)) found.push_back(border.latency_s);
    return found;
  };
  EXPECT_THAT(latencies({0, 1, 2, 3, 4}, 0), ElementsAre(1, 2, 1, 2, 0));
  EXPECT_THAT(latencies({0, 1, 2, 3, 4}, 1), ElementsAre(2, 1, 2, 1, 0));
  EXPECT_THAT(latencies({0}, 0), ElementsAre(0));
  // Two stages a device: back to the first one's node.
  EXPECT_THAT(latencies({0, 1, 2, 0, 1, 2}, 0), ElementsAre(1, 2, 2, 1, 2, 0));
}

TEST(ClusterLinks, ReplicasBeginAtSomeOffsetsOfANode) {
  EXPECT_THAT((Placement{50, 200, 8}).offsets(), ElementsAre(0, 2, 4, 6));
  EXPECT_THAT((Placement{50, 2, 8}).offsets(), ElementsAre(0, 2));
  EXPECT_THAT((Placement{2, 12, 8}).offsets(), ElementsAre(0, 2, 4, 6));
  EXPECT_THAT((Placement{16, 9, 8}).offsets(), ElementsAre(0));
  EXPECT_THAT((Placement{3, 9, 8}).offsets(), SizeIs(8));
  EXPECT_EQ((Placement{50, 200, 8}).nodes(), 1250);
  EXPECT_EQ((Placement{3, 3, 8}).nodes(), 2);
}

// Counted device by device.
TEST(ClusterLinks, EachSetOfStagesThatShareANodeIsThereOnce) {
  const auto of = [](int devices, int replicas, int per_node) {
    std::vector<int> owners(devices);
    std::iota(owners.begin(), owners.end(), 0);
    return shared_networks(owners, {devices, replicas, per_node});
  };
  EXPECT_THAT(of(2, 8, 4), IsEmpty()) << "each node has all stages";
  EXPECT_THAT(of(4, 8, 4), IsEmpty());
  EXPECT_THAT(of(4, 3, 2), ElementsAre(ElementsAre(0, 1), ElementsAre(2, 3)));
  EXPECT_THAT(of(3, 2, 2), ElementsAre(ElementsAre(0, 1), ElementsAre(1, 2), ElementsAre(0, 2)));
  EXPECT_THAT(of(3, 1, 2), ElementsAre(ElementsAre(0, 1), ElementsAre(2)));
  EXPECT_THAT(of(50, 200, 8), SizeIs(25));
  EXPECT_THAT(shared_networks({0, 1, 0, 1}, {2, 2, 1}), ElementsAre(ElementsAre(0, 2), ElementsAre(1, 3)))
      << "two stages a device";
}

}  // namespace
}  // namespace sluice::tune
