#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "core/rng.h"
#include "pipeline/frozen_prefix.h"

namespace sluice::pipeline {
namespace {

TEST(PrefixShares, AreEqualConsecutiveAndWithinOneMicroBatch) {
  RngStream rng(hash_name("prefix shares"));
  for (int round = 0; round < 500; ++round) {
    const int devices = 1 + static_cast<int>(rng.below(5));
    std::vector<std::int64_t> sizes(1 + rng.below(6));
    for (std::int64_t& size : sizes) size = static_cast<std::int64_t>(rng.below(5));
    std::vector<std::int64_t> of_devices(devices), expected;
    std::vector<std::int64_t> next(sizes.size());
    int last_device = 0;
    for (const PrefixShare& share : prefix_shares(sizes, devices)) {
      const int micro_batch = index(share.micro_batch);
      EXPECT_EQ(share.begin, next[micro_batch]) << "each sample once, in order";
      EXPECT_LT(share.begin, share.end);
      EXPECT_GE(index(share.device), last_device);
      last_device = index(share.device);
      next[micro_batch] = share.end;
      of_devices[last_device] += share.end - share.begin;
    }
    EXPECT_EQ(next, sizes);
    EXPECT_LE(std::ranges::max(of_devices) - std::ranges::min(of_devices), 1);
  }
}

TEST(WholePrefixShares, GiveEachDeviceWholeMicroBatches) {
  const auto share = [](int micro_batch, int device, std::int64_t samples) {
    return PrefixShare{MicroBatchId{micro_batch}, DeviceId{device}, 0, samples};
  };
  EXPECT_EQ(whole_prefix_shares({4, 4, 2, 0}, 2),
            (std::vector<PrefixShare>{share(0, 0, 4), share(1, 0, 4), share(2, 1, 2)}));
  EXPECT_EQ(whole_prefix_shares({4}, 3), (std::vector<PrefixShare>{share(0, 0, 4)}));
  EXPECT_TRUE(whole_prefix_shares({0, 0}, 2).empty());
}

}  // namespace
}  // namespace sluice::pipeline
