#include "ps/shard_threads.h"

#include <gmock/gmock.h>

#include <atomic>
#include <latch>
#include <mutex>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>

namespace sluice::ps {
namespace {

using testing::ThrowsMessage;

TEST(ShardThreads, DoesEveryShardOnceAndTheCallerSeesWhatWasDone) {
  for (const int threads : {1, 2, 4}) {
    ShardThreads team(threads);
    std::vector<int> done(7);  // not atomic: TSan says where two touch one, or the caller reads too early
    for (int update = 1; update <= 300; ++update) {
      const auto shards = static_cast<std::size_t>(update) % 8;
      team.run(shards, [&](std::size_t shard) { done[shard] += update; });
      for (std::size_t shard = 0; shard < shards; ++shard) ASSERT_EQ(done[shard], update);
      done.assign(7, 0);
    }
  }
}

TEST(ShardThreads, AllThreadsWorkAtOnce) {
  ShardThreads team(3);
  std::latch all_there(3);
  std::mutex mutex;
  std::set<std::thread::id> who;
  team.run(3, [&](std::size_t) {
    all_there.arrive_and_wait();  // for ever, if one were to do two of them
    const std::scoped_lock lock(mutex);
    who.insert(std::this_thread::get_id());
  });
  EXPECT_EQ(who.size(), 3U);
  EXPECT_TRUE(who.contains(std::this_thread::get_id()));
}

TEST(ShardThreads, EachOfTheOtherThreadsBeginsWithWhatItIsTold) {
  std::latch begun(2);
  std::atomic<int> times = 0;
  thread_local bool is_begun = false;
  is_begun = true;  // the caller does so by itself
  ShardThreads team(3, [&] {
    is_begun = true;
    ++times;
    begun.count_down();
  });
  std::atomic<int> not_begun = 0;
  for (int update = 0; update < 100; ++update) team.run(3, [&](std::size_t) { not_begun += is_begun ? 0 : 1; });
  begun.wait();
  EXPECT_EQ(times, 2);
  EXPECT_EQ(not_begun, 0);
}

// A thread that waits for a core must not keep an update waiting: here all others are held up by another's shard.
TEST(ShardThreads, WhoeverIsFreeTakesTheNextShard) {
  ShardThreads team(2);
  std::latch others_done(4);
  team.run(5, [&](std::size_t shard) {
    if (shard == 0)
      others_done.wait();
    else
      others_done.count_down();
  });
}

TEST(ShardThreads, TheFirstErrorReachesTheCallerAndTheNextUpdateWorks) {
  for (const int threads : {1, 2, 4}) {
    ShardThreads team(threads);
    for (int update = 0; update < 50; ++update) {
      std::atomic<int> done = 0;
      const auto fail_in_one = [&] {
        team.run(40, [&](std::size_t shard) {
          if (shard == 2) throw std::runtime_error("shard 2 is broken");
          ++done;
        });
      };
      EXPECT_THAT(fail_in_one, ThrowsMessage<std::runtime_error>(std::string("shard 2 is broken")));
      if (threads == 1) {
        EXPECT_EQ(done, 2) << "none is begun after it";
      }
      done = 0;
      team.run(40, [&](std::size_t) { ++done; });
      EXPECT_EQ(done, 40);
    }
  }
}

TEST(ShardThreads, OfSeveralErrorsOneIsThrownOnce) {
  ShardThreads team(4);
  for (int update = 0; update < 50; ++update) {
    EXPECT_THROW(team.run(4, [](std::size_t) { throw std::runtime_error("all are broken"); }), std::runtime_error);
    EXPECT_NO_THROW(team.run(4, [](std::size_t) {}));
  }
}

TEST(ShardThreads, EndsWhileIdleAndWithoutEverHavingWorked) {
  for (int round = 0; round < 50; ++round) {
    ShardThreads never(3);
    ShardThreads idle(3);
    idle.run(2, [](std::size_t) {});
  }
}

}  // namespace
}  // namespace sluice::ps
