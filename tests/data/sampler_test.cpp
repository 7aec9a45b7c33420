#include "data/sampler.h"

#include <gmock/gmock.h>

#include <algorithm>

#include "core/error.h"

namespace sluice::data {
namespace {

using testing::ElementsAre;

TEST(Sampler, TheOrderIsASeededPermutation) {
  EXPECT_EQ(epoch_order(7, 3, 100), epoch_order(7, 3, 100));
  for (const std::uint64_t seed : {0ULL, 1ULL, ~0ULL}) {
    for (const std::int64_t size : {0, 1, 2, 3, 64, 1000}) {
      auto order = epoch_order(seed, 0, size);
      std::ranges::sort(order);
      EXPECT_EQ(order, sequential_order(size)) << "seed " << seed;
    }
  }
}

TEST(Sampler, SeedsAndEpochsGiveDifferentOrders) {
  EXPECT_NE(epoch_order(7, 0, 100), epoch_order(7, 1, 100));
  EXPECT_NE(epoch_order(7, 0, 100), epoch_order(8, 0, 100));
  EXPECT_NE(epoch_order(7, 0, 100), sequential_order(100));
}

// Resumed runs rely on this: a change of the generator must show.
TEST(Sampler, TheOrderOfAKnownSeedDoesNotChange) {
  EXPECT_THAT(epoch_order(42, 0, 8), ElementsAre(7, 1, 2, 0, 3, 5, 6, 4));
}

TEST(Sampler, EveryPlaceIsAsLikelyForEverySample) {
  constexpr int kEpochs = 6000;
  std::array<std::array<int, 6>, 6> counts{};
  for (int epoch = 0; epoch < kEpochs; ++epoch) {
    const auto order = epoch_order(1, epoch, 6);
    for (std::size_t place = 0; place < 6; ++place) ++counts[place][static_cast<std::size_t>(order[place])];
  }
  for (const auto& row : counts) {
    for (const int count : row) EXPECT_NEAR(count, kEpochs / 6.0, 150);
  }
}

TEST(Sampler, TheLastBatchIsShortAndKept) {
  EXPECT_EQ(batches_per_epoch(10, 4), 3);
  EXPECT_EQ(batches_per_epoch(8, 4), 2);
  EXPECT_EQ(batches_per_epoch(1, 4), 1);
  EXPECT_EQ(batch_slice(10, 4, 0), (Slice{0, 4}));
  EXPECT_EQ(batch_slice(10, 4, 2), (Slice{8, 2}));
  EXPECT_THROW(static_cast<void>(batch_slice(10, 4, 3)), BugError);
}

TEST(Sampler, ReplicasGetNeighbouringSlicesTheLargerOnesFirst) {
  EXPECT_THAT(replica_slices(10, 4), ElementsAre(Slice{0, 3}, Slice{3, 3}, Slice{6, 2}, Slice{8, 2}));
  EXPECT_THAT(replica_slices(8, 2), ElementsAre(Slice{0, 4}, Slice{4, 4}));
  EXPECT_THAT(replica_slices(2, 3), ElementsAre(Slice{0, 1}, Slice{1, 1}, Slice{2, 0}));
  EXPECT_THAT(replica_slices(0, 2), ElementsAre(Slice{0, 0}, Slice{0, 0}));
}

TEST(Sampler, AShareIsTheUnionOfItsReplicas) {
  EXPECT_EQ(share_slice(10, {.first = 1, .count = 2, .parts = 4}), (Slice{3, 5}));
  EXPECT_EQ(share_slice(10, {.first = 0, .count = 4, .parts = 4}), (Slice{0, 10}));
  EXPECT_THROW(static_cast<void>(share_slice(10, {.first = 3, .count = 2, .parts = 4})), BugError);
}

// The promise of the whole module: however batches and replicas cut an epoch, the pieces in order are the order.
TEST(Sampler, EverySampleComesExactlyOnceHoweverTheEpochIsCut) {
  for (const std::int64_t size : {1, 7, 64, 101}) {
    const auto order = epoch_order(5, 2, size);
    for (const std::int64_t batch_size : {1, 3, 32, 200}) {
      for (const std::int64_t replicas : {1, 2, 3, 8}) {
        std::vector<std::int64_t> seen;
        for (std::int64_t batch = 0; batch < batches_per_epoch(size, batch_size); ++batch) {
          const auto whole = batch_slice(size, batch_size, batch);
          for (const auto& part : replica_slices(whole.count, replicas)) {
            const auto first = order.begin() + whole.begin + part.begin;
            seen.insert(seen.end(), first, first + part.count);
          }
        }
        EXPECT_EQ(seen, order) << size << " in batches of " << batch_size << " over " << replicas;
      }
    }
  }
}

}  // namespace
}  // namespace sluice::data
