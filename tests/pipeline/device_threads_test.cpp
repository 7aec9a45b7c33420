#include "pipeline/device_threads.h"

#include <gtest/gtest.h>

#include <ATen/Parallel.h>

#include <atomic>
#include <mutex>
#include <set>
#include <thread>

#include "core/error.h"

namespace sluice::pipeline {
namespace {

using namespace std::chrono_literals;

std::vector<Slot> slots(int count) {
  std::vector<Slot> result;
  for (int i = 0; i < count; ++i) result.push_back({ReplicaId{0}, DeviceId{i}, {device::DeviceKind::kCpu, i}, 1});
  return result;
}

TEST(DeviceThreads, EverySlotHasAThreadOfItsOwnThatItKeeps) {
  DeviceThreads pool(slots(3));
  std::mutex mutex;
  std::set<std::thread::id> threads;
  for (int round = 0; round < 5; ++round) {
    pool.run(
        [&](int) {
          const std::scoped_lock lock(mutex);
          threads.insert(std::this_thread::get_id());
        },
        {.timeout = 10s});
  }
  EXPECT_EQ(threads.size(), 3U);
}

TEST(DeviceThreads, OtherSlotsKeepTheThreadsThatAreThere) {
  DeviceThreads pool(slots(2));
  std::mutex mutex;
  std::set<std::thread::id> threads;
  for (const int count : {2, 3, 1, 3, 2, 1, 3}) {
    pool.assign(slots(count));
    ASSERT_EQ(pool.slots().size(), static_cast<std::size_t>(count));
    for (int round = 0; round < 2; ++round) {
      std::vector<int> runs(count);
      pool.run(
          [&](int slot) {
            const std::scoped_lock lock(mutex);
            threads.insert(std::this_thread::get_id());
            ++runs.at(slot);
          },
          {.timeout = 10s});
      EXPECT_EQ(runs, std::vector<int>(count, 1));
    }
  }
  EXPECT_EQ(threads.size(), 3U);
}

TEST(DeviceThreads, AThreadTakesOnTheThreadCountOfItsNewSlot) {
  DeviceThreads pool(slots(1));
  for (const int count : {1, 2, 1}) {
    std::vector<Slot> one = slots(1);
    one.front().cpu_threads = count;
    pool.assign(one);
    int found = 0;
    pool.run([&](int) { found = at::get_num_threads(); }, {.timeout = 10s});
    EXPECT_EQ(found, count);
  }
}

TEST(DeviceThreads, TheFirstFailureWinsAndAllAreBackBeforeItIsThrown) {
  DeviceThreads pool(slots(3));
  std::atomic<int> running = 0;
  std::atomic<bool> woken = false;
  const auto job = [&](int slot) {
    ++running;
    if (slot == 1) {
      --running;
      throw DataError("first");
    }
    while (!woken) std::this_thread::sleep_for(1ms);
    --running;
  };
  try {
    pool.run(job, {.timeout = 10s, .on_failure = [&] { woken = true; }});
    FAIL();
  } catch (const DataError& error) {
    EXPECT_STREQ(error.what(), "first");
  }
  EXPECT_EQ(running, 0);
}

// Symptom: a kernel that never returns kept the whole program from ending.
TEST(DeviceThreads, AThreadThatNeverReturnsIsAbandonedAfterTheGracePeriod) {
  static std::atomic<bool> release = false;  // outlives the pool, as what an abandoned job uses must
  {
    DeviceThreads pool(slots(2));
    const auto job = [](int slot) {
      while (slot == 1 && !release) std::this_thread::sleep_for(1ms);
    };
    EXPECT_FALSE(pool.has_abandoned_threads());
    EXPECT_THROW(pool.run(job, {.timeout = 50ms, .grace = 50ms}), PeerError);
    EXPECT_TRUE(pool.has_abandoned_threads());
    EXPECT_THROW(pool.run(job, {.timeout = 50ms}), BugError);
  }
  release = true;
  std::this_thread::sleep_for(20ms);
}

}  // namespace
}  // namespace sluice::pipeline
