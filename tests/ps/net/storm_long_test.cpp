// Storms of a hundred events (see storm_test.cpp), and whether a server grows that has served for long.
#include <filesystem>
#include <iterator>

#include "ps/net/raw_peer.h"
#include "ps/net/storm.h"

namespace sluice::ps::test {
namespace {

class LongStorm : public testing::TestWithParam<const char*> {};

TEST_P(LongStorm, WhatIsLearntIsWhatWasCounted) {
  for (const std::uint64_t seed : {1, 2}) weather({.policy = GetParam(), .workers = 4, .events = 100, .seed = seed});
}
TEST_P(LongStorm, SoIsWhatSeveralServersLearn) {
  weather({.policy = GetParam(), .workers = 4, .events = 100, .seed = 3, .servers = 3});
}
INSTANTIATE_TEST_SUITE_P(Policies, LongStorm, testing::Values("bsp", "asp", "ssp", "quorum"));

std::int64_t descriptors() {
  const std::filesystem::directory_iterator all("/proc/self/fd");
  return std::distance(begin(all), end(all));
}

// Each push of these takes a lease, weights, an update and its record: had one kept as much as 100 bytes, the second
// half, 50000 of them, would show 5 MB. What the allocator keeps for its threads was seen to move by 0.3 MB.
constexpr std::int64_t kMayGrow = 4 << 20;

TEST(GrowthTest, AServerDoesNotGrowWithItsPushes) {
  constexpr std::int64_t kPushes = 100'000;
  ToyServer server(preset_policy("asp", 3), kPushes);
  server.on_update = [](NetworkUpdate) {};
  server.start();
  std::vector<std::thread> threads;
  for (int w = 0; w < 3; ++w) threads.emplace_back([&, w] { work(toy_link(server.port(), w)); });
  while (server.updates_told < kPushes / 2) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  const std::int64_t bytes = memory_use().resident, files = descriptors();
  while (server.updates_told < kPushes - 100) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_EQ(descriptors(), files);
  const std::int64_t grown = memory_use().resident - bytes;
  EXPECT_LT(grown, kMayGrow);
  for (std::thread& thread : threads) thread.join();
  server.join();
  EXPECT_FALSE(server.failure);
  EXPECT_EQ(server.server().progress().version, kPushes);
  std::printf("[ growth ] %lld bytes in the second half of %lld pushes\n", static_cast<long long>(grown),
              static_cast<long long>(kPushes));
}

// A peer, its connection and its lease are gone when its worker is. Of one that leaves the server keeps 8 bytes:
// that it has lived.
TEST(GrowthTest, AServerDoesNotGrowWithWorkersThatComeAndGo) {
  constexpr int kIncarnations = 1000;
  ToyServer server(preset_policy("asp", 1), 1'000'000, 2, [](NetworkOptions& options) { options.on_event = {}; });
  server.on_update = [](NetworkUpdate) {};
  server.start();
  NetworkLink stays(toy_link(server.port(), 1));
  std::int64_t bytes = 0, files = 0;
  for (int incarnation = 0; incarnation < kIncarnations; ++incarnation) {
    EXPECT_EQ(work(toy_link(server.port(), 0), /*most=*/3), 3);
    if (incarnation != kIncarnations / 4) continue;
    bytes = memory_use().resident;
    files = descriptors();
  }
  const Nanoseconds until = now_ns() + 5'000'000'000;  // the last connections are closing
  while (descriptors() > files && now_ns() < until) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_LE(descriptors(), files);
  const std::int64_t grown = memory_use().resident - bytes;
  EXPECT_LT(grown, kMayGrow);
  std::printf("[ growth ] %lld bytes in %d lives of a worker\n", static_cast<long long>(grown), kIncarnations * 3 / 4);
  stays.leave();
  server.stop();
}

}  // namespace
}  // namespace sluice::ps::test
