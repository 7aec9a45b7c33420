// A shard server without its network.
#include "ps/shard_keeper.h"

#include <gtest/gtest.h>

#include <ATen/ATen.h>

namespace sluice::ps {
namespace {

PushKey key_of(int worker, std::int64_t sequence) { return {WorkerId{worker}, 1, sequence}; }
Tensors part_of(double value) {
  return {.shards = {at::full({3}, value, at::kDouble)}, .statistics = at::empty({0}, at::kDouble)};
}
ShardStep step_of(std::int64_t version, std::vector<PushKey> pushes) {
  return {.version = version, .mix = {.parts = {{.push = 0}}}, .pushes = std::move(pushes)};
}

struct ShardKeeperTest : testing::Test {
  ShardKeeper keeper{{.kind = "sgd"},
                     {.dtype = at::kDouble, .shards = {3}},
                     {.values = {at::zeros({3}, at::kDouble)}, .optimizer = {}},
                     /*version=*/0};

  void expect_weights(double value) {
    EXPECT_TRUE(at::equal(keeper.weights().shards[0], at::full({3}, value, at::kDouble))) << keeper.weights().shards[0];
  }
};

TEST_F(ShardKeeperTest, WhatIsCommittedNeedNotHaveBeenAskedForFirst) {
  EXPECT_FALSE(keeper.commit(step_of(1, {key_of(0, 1)}), {.lr = 1})) << "a part of it is missing";
  EXPECT_TRUE(keeper.hold(key_of(0, 1), part_of(2)));
  EXPECT_TRUE(keeper.commit(step_of(1, {key_of(0, 1)}), {.lr = 1}));
  expect_weights(-2);
  EXPECT_TRUE(keeper.commit(step_of(1, {key_of(0, 1)}), {.lr = 1})) << "it is done";
  expect_weights(-2);
}

// A lead server that was lost in between may return and decide differently.
TEST_F(ShardKeeperTest, AnUpdateOfOtherPushesIsPreparedAnew) {
  EXPECT_TRUE(keeper.hold(key_of(0, 1), part_of(2)));
  EXPECT_TRUE(keeper.hold(key_of(1, 1), part_of(5)));
  EXPECT_TRUE(keeper.prepare(step_of(1, {key_of(0, 1)})).has_value());
  EXPECT_TRUE(keeper.commit(step_of(1, {key_of(1, 1)}), {.lr = 1}));
  expect_weights(-5);
}

TEST_F(ShardKeeperTest, OfEachWorkerTheNewestPartIsHeldUntilItsUpdate) {
  EXPECT_TRUE(keeper.hold(key_of(0, 2), part_of(2)));
  EXPECT_FALSE(keeper.hold(key_of(0, 1), part_of(1)));
  EXPECT_EQ(keeper.part_state(key_of(0, 1)), PartState::kMissing);
  EXPECT_EQ(keeper.part_state(key_of(0, 2)), PartState::kFinite);
  EXPECT_TRUE(keeper.has_seen(key_of(0, 1)));
  EXPECT_TRUE(keeper.commit(step_of(1, {key_of(0, 2)}), {.lr = 1}));
  EXPECT_EQ(keeper.part_state(key_of(0, 2)), PartState::kMissing) << "it is in the weights";
  EXPECT_TRUE(keeper.has_seen(key_of(0, 2)));
  EXPECT_TRUE(keeper.parts().empty());
}

}  // namespace
}  // namespace sluice::ps
