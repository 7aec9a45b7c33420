#include "data/sampler.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <set>
#include <vector>

#include "core/error.h"

namespace sluice::data {
namespace {

using testing::ElementsAre;

std::vector<Slice> replica_slices(std::int64_t batch_samples, std::int64_t replicas) {
  std::vector<Slice> slices;
  for (std::int64_t first = 0; first < replicas; ++first)
    slices.push_back(share_slice(batch_samples, {.first = first, .count = 1, .parts = replicas}));
  return slices;
}

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

// Resumed runs rely on this order.
TEST(Sampler, TheOrderOfAKnownSeedDoesNotChange) {
  EXPECT_THAT(epoch_order(42, 0, 8), ElementsAre(7, 1, 2, 0, 3, 5, 6, 4));
}

TEST(Sampler, EveryPositionIsAsLikelyForEverySample) {
  constexpr int kEpochs = 6000;
  std::array<std::array<int, 6>, 6> counts{};
  for (int epoch = 0; epoch < kEpochs; ++epoch) {
    const auto order = epoch_order(1, epoch, 6);
    for (std::size_t position = 0; position < 6; ++position)
      ++counts[position][static_cast<std::size_t>(order[position])];
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
  // In units of 4: 2, 1 and 1 units, the last of which has 2 samples; and more parts than units.
  EXPECT_EQ(share_slice(14, {.first = 0, .count = 1, .parts = 3, .unit = 4}), (Slice{0, 8}));
  EXPECT_EQ(share_slice(14, {.first = 2, .count = 1, .parts = 3, .unit = 4}), (Slice{12, 2}));
  EXPECT_EQ(share_slice(6, {.first = 2, .count = 2, .parts = 4, .unit = 4}), (Slice{6, 0}));
  EXPECT_THROW(static_cast<void>(share_slice(10, {.first = 3, .count = 2, .parts = 4})), BugError);
}

TEST(Sampler, SharesFollowTheirWeights) {
  const Parts parts(4, {1, 4, 2, 1});
  EXPECT_EQ(share_slice(16, {.first = 0, .count = 1, .parts = parts}), (Slice{0, 2}));
  EXPECT_EQ(share_slice(16, {.first = 1, .count = 2, .parts = parts}), (Slice{2, 12}));
  // In units of 4: 5 units, the last of which has 2 samples.
  EXPECT_EQ(share_slice(18, {.first = 1, .count = 1, .parts = parts, .unit = 4}), (Slice{0, 12}));
  EXPECT_EQ(share_slice(18, {.first = 2, .count = 2, .parts = parts, .unit = 4}), (Slice{12, 6}));
}

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

std::vector<std::vector<std::int64_t>> homes_of(const std::vector<std::int64_t>& batch, std::int64_t processes,
                                                std::int64_t replicas, const std::vector<int>& weights = {}) {
  std::vector<std::vector<std::int64_t>> shares;
  for (std::int64_t process = 0; process < processes; ++process)
    shares.push_back(samples_at_home(batch, {process * replicas, replicas, Parts(processes * replicas, weights)}));
  return shares;
}

TEST(Sampler, SamplesAtHomeFollowTheWeightsToo) {
  const std::vector<std::int64_t> batch = epoch_order(3, 0, 24);
  const auto shares = homes_of(batch, 3, 2, {1, 1, 3, 3, 2, 2});
  std::multiset<std::int64_t> all;
  for (std::size_t process = 0; process < shares.size(); ++process) {
    EXPECT_EQ(shares[process].size(), (std::vector<std::size_t>{4, 12, 8}[process]));
    all.insert(shares[process].begin(), shares[process].end());
  }
  EXPECT_EQ(all, std::multiset<std::int64_t>(batch.begin(), batch.end()));
}

TEST(Sampler, ShardsComeWholeAndSamplesStayInTheirWindow) {
  const std::vector<std::int64_t> begins{0, 7, 8, 30, 55};
  constexpr std::int64_t kSize = 61;
  std::set<std::vector<std::int64_t>> orders;
  for (std::int64_t epoch = 0; epoch < 20; ++epoch) {
    const auto plain = shard_order(3, epoch, kSize, begins, 1);  // a window of one: as the shards have them
    for (std::size_t i = 0; i + 1 < plain.size(); ++i) {
      const bool begins_shard = std::ranges::binary_search(begins, plain[i + 1]);
      EXPECT_TRUE(plain[i + 1] == plain[i] + 1 || begins_shard) << "epoch " << epoch << " place " << i;
    }
    for (const std::int64_t window : {4, 10, 61, 1000}) {
      const auto order = shard_order(3, epoch, kSize, begins, window);
      ASSERT_EQ(std::ssize(order), kSize);
      for (std::int64_t begin = 0; begin < kSize; begin += window) {
        const std::int64_t end = std::min(begin + window, kSize);
        const std::set<std::int64_t> mine(order.begin() + begin, order.begin() + end);
        EXPECT_EQ(mine, std::set<std::int64_t>(plain.begin() + begin, plain.begin() + end)) << "window " << window;
      }
      EXPECT_EQ(order, shard_order(3, epoch, kSize, begins, window));
      orders.insert(order);
    }
  }
  EXPECT_EQ(orders.size(), 60U) << "each epoch has another order, and the last two windows take all samples";
}

TEST(Sampler, TheOrderByLengthSortsWindowsOfTheShuffledSamples) {
  constexpr std::int64_t kSize = 1000, kBatch = 3, kWindow = kLengthWindow * kBatch;
  std::vector<int> lengths;
  for (std::int64_t i = 0; i < kSize; ++i) lengths.push_back(static_cast<int>(i * 37 % 11));
  std::set<std::vector<std::int64_t>> orders;
  for (std::int64_t epoch = 0; epoch < 5; ++epoch) {
    const auto order = length_order(9, epoch, lengths, kBatch), shuffled = epoch_order(9, epoch, kSize);
    for (std::int64_t begin = 0; begin < kSize; begin += kWindow) {
      const std::int64_t end = std::min(begin + kWindow, kSize);
      const std::set<std::int64_t> mine(order.begin() + begin, order.begin() + end);
      EXPECT_EQ(mine, std::set<std::int64_t>(shuffled.begin() + begin, shuffled.begin() + end));
      EXPECT_TRUE(std::is_sorted(order.begin() + begin, order.begin() + end,
                                 [&](std::int64_t a, std::int64_t b) { return lengths[a] > lengths[b]; }));
    }
    orders.insert(order);
  }
  EXPECT_EQ(orders.size(), 5U);
  EXPECT_TRUE(length_order(9, 0, {}, kBatch).empty());
}

TEST(Sampler, SamplesAtHomeAreTheBatchOnceInItsOrder) {
  for (const std::int64_t processes : {1, 2, 3}) {
    for (const std::int64_t replicas : {1, 2, 3}) {
      for (const std::int64_t size : {0, 1, 5, 64}) {
        auto batch = epoch_order(5, 1, 200);
        batch.resize(size);
        std::vector<std::int64_t> all;
        const auto shares = homes_of(batch, processes, replicas);
        for (std::int64_t process = 0; process < processes; ++process) {
          const auto& mine = shares[process];
          EXPECT_EQ(std::ssize(mine), share_slice(size, {process * replicas, replicas, processes * replicas}).count);
          const auto position = [&](std::int64_t sample) { return std::ranges::find(batch, sample); };
          EXPECT_TRUE(std::ranges::is_sorted(mine, {}, position)) << "the order is the batch's";
          all.insert(all.end(), mine.begin(), mine.end());
        }
        EXPECT_TRUE(processes > 1 || all == batch);
        std::ranges::sort(all);
        std::ranges::sort(batch);
        EXPECT_EQ(all, batch);
      }
    }
  }
}

TEST(Sampler, SamplesComeHomeAgain) {
  constexpr std::int64_t kSize = 4000, kBatch = 40;
  for (const std::int64_t processes : {2, 3}) {
    std::vector<std::set<std::int64_t>> seen(processes);
    std::vector<double> found;
    for (std::int64_t epoch = 0; epoch < 6; ++epoch) {
      const auto order = epoch_order(1, epoch, kSize);
      double again = 0;
      for (std::int64_t begin = 0; begin < kSize; begin += kBatch) {
        const std::int64_t replicas = epoch < 3 ? 1 : 2;  // more of them on the way
        const auto shares = homes_of({order.begin() + begin, order.begin() + begin + kBatch}, processes, replicas);
        for (std::int64_t process = 0; process < processes; ++process) {
          for (const std::int64_t sample : shares[process]) again += seen[process].insert(sample).second ? 0 : 1;
        }
      }
      found.push_back(again / kSize);
    }
    EXPECT_EQ(found[0], 0);
    EXPECT_GT(found[1], 0.8) << processes;  // by chance it would be 1 / processes
    EXPECT_GT(found[2], 0.9) << processes;
    EXPECT_GT(found[5], 0.95) << processes;
  }
}

}  // namespace
}  // namespace sluice::data
