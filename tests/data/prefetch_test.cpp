#include "data/prefetch.h"

#include <gmock/gmock.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "support/paused_process.h"

namespace sluice::data {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;
using testing::ThrowsMessage;

std::string thing(std::int64_t number) { return concat("thing ", number); }

// A run that was stopped for long (Ctrl-Z) used to fail with "reading the data hangs". This test comes first, because
// it copies this process while it has one thread.
TEST(Prefetch, APauseOfTheProcessIsNoHangOfTheData) {
  const int code = sluice::test::run_and_pause(300ms, 2000ms, [] {
    const auto slow = [](std::int64_t, const std::stop_token&) {
      sluice::test::run_for(1000ms);
      return 7;
    };
    try {
      Prefetcher<int> prefetcher(1, slow, {.threads = 1, .depth = 1, .wait_limit = 1500ms});
      return prefetcher.next() == 7 ? 0 : 1;
    } catch (const DataError&) {
      return 3;
    }
  });
  EXPECT_EQ(code, 0);
}

TEST(Prefetch, HandsThingsOutInOrderForAnyNumberOfThreads) {
  for (const int threads : {0, 1, 2, 3, 7}) {
    for (const int depth : {1, 2, 5}) {
      Prefetcher<std::string> prefetcher(
          40,
          [](std::int64_t number, const std::stop_token&) {
            std::this_thread::sleep_for(std::chrono::microseconds(number * 37 % 11 * 20));
            return thing(number);
          },
          {.threads = threads, .depth = depth});
      for (std::int64_t i = 0; i < 40; ++i) ASSERT_EQ(prefetcher.next(), thing(i));
      EXPECT_EQ(prefetcher.next(), std::nullopt);
      EXPECT_EQ(prefetcher.next(), std::nullopt);
    }
  }
}

TEST(Prefetch, ThreadsWithNothingToMakeHelpWithThePiecesOfWhatIsMade) {
  constexpr std::int64_t kPieces = 200;
  const auto team = std::make_shared<Team>();
  std::mutex mutex;
  std::set<std::thread::id> of_second;
  Prefetcher<std::vector<int>> prefetcher(6,
                                          [&](std::int64_t number, const std::stop_token&) {
                                            std::vector<int> made(kPieces);
                                            team->run(kPieces, [&](std::int64_t i) {
                                              std::this_thread::sleep_for(200us);
                                              made[static_cast<std::size_t>(i)] += static_cast<int>(1000 * number + i);
                                              const std::scoped_lock lock(mutex);
                                              if (number == 1) of_second.insert(std::this_thread::get_id());
                                            });
                                            return made;
                                          },
                                          {.threads = 4, .depth = 1, .team = team});
  for (int number = 0; number < 6; ++number) {
    const auto made = prefetcher.next();
    for (int i = 0; i < kPieces; ++i) ASSERT_EQ(made.value()[static_cast<std::size_t>(i)], 1000 * number + i);
  }
  EXPECT_GE(of_second.size(), 3U);
}

TEST(Team, ThrowsWhatTheFirstPieceInOrderHasThrown) {
  for (int repeat = 0; repeat < 50; ++repeat) {
    Team team;
    std::atomic<bool> is_over{false};
    std::vector<std::jthread> helpers;
    for (int i = 0; i < 3; ++i) {
      helpers.emplace_back([&] {
        while (!is_over) team.help();
      });
    }
    const auto run = [&] {
      team.run(40, [&](std::int64_t i) {
        std::this_thread::sleep_for(std::chrono::microseconds(i * 37 % 11 * 10));
        if (i == 7 || i == 9 || i == 30) throw DataError("piece ", i);
      });
    };
    EXPECT_THAT(run, ThrowsMessage<DataError>("piece 7"));
    int done = 0;
    team.run(1, [&](std::int64_t) { ++done; });  // it is of use afterwards
    team.run(0, [&](std::int64_t) { ++done; });
    EXPECT_EQ(done, 1);
    is_over = true;
  }
}

TEST(Prefetch, MakesNoMoreThanDepthAhead) {
  std::atomic<std::int64_t> most{-1};
  Prefetcher<int> prefetcher(1000,
                             [&](std::int64_t number, const std::stop_token&) {
                               most = std::max(most.load(), number);
                               return 0;
                             },
                             {.threads = 1, .depth = 3});
  prefetcher.next();
  std::this_thread::sleep_for(50ms);
  EXPECT_LE(most.load(), 3);
}

TEST(Prefetch, AFailureComesOnceInItsTurnAndEndsTheSequence) {
  for (const int threads : {0, 1, 3}) {
    Prefetcher<std::string> prefetcher(20,
                                       [](std::int64_t number, const std::stop_token&) {
                                         if (number >= 5) throw DataError(thing(number));
                                         return thing(number);
                                       },
                                       {.threads = threads, .depth = 8});
    for (std::int64_t i = 0; i < 5; ++i) ASSERT_EQ(prefetcher.next(), thing(i));
    EXPECT_THAT([&] { prefetcher.next(); }, ThrowsMessage<DataError>(HasSubstr("thing 5")));
    EXPECT_THAT([&] { prefetcher.next(); }, ThrowsMessage<BugError>(HasSubstr("has failed")));
  }
}

// State of a make() that hangs. The threads own it, because one of them may outlive the prefetcher.
struct Gate {
  std::atomic<bool> open{false};
  std::atomic<bool> waited_at{false};
  void pass() {
    waited_at = true;
    open.wait(false);
  }
  void release() {
    open = true;
    open.notify_all();
  }
};

Prefetcher<int>::Make hanging(const std::shared_ptr<Gate>& gate) {
  return [gate](std::int64_t number, const std::stop_token&) {
    if (number == 1) gate->pass();
    return 7;
  };
}

bool threads_end(const std::shared_ptr<Gate>& gate) {
  for (int tries = 0; tries < 5000 && gate.use_count() > 1; ++tries) std::this_thread::sleep_for(1ms);
  return gate.use_count() == 1;
}

// The run used to report the hang and never exit, because the destructor joined the reader.
TEST(Prefetch, AHangingMakerIsReportedAndAbandoned) {
  for (const int threads : {1, 3}) {
    const auto gate = std::make_shared<Gate>();
    {
      Prefetcher<int> prefetcher(5, hanging(gate), {.threads = threads, .depth = 2, .wait_limit = 50ms});
      EXPECT_EQ(prefetcher.next(), 7);
      EXPECT_THAT([&] { prefetcher.next(); }, ThrowsMessage<DataError>(HasSubstr("no batch came within 50 ms")));
      EXPECT_THAT([&] { prefetcher.next(); }, ThrowsMessage<BugError>(HasSubstr("has failed")));
    }
    EXPECT_GT(gate.use_count(), 1) << "the destructor came back although the maker hangs";
    gate->release();
    EXPECT_TRUE(threads_end(gate));
  }
}

TEST(Prefetch, TheDestructorWaitsNoLongerThanTheLimit) {
  const auto gate = std::make_shared<Gate>();
  const auto begin = std::chrono::steady_clock::now();
  {
    Prefetcher<int> prefetcher(5, hanging(gate), {.threads = 1, .depth = 2, .wait_limit = 200ms});
    EXPECT_EQ(prefetcher.next(), 7);
    while (!gate->waited_at) std::this_thread::sleep_for(1ms);
  }
  EXPECT_GE(std::chrono::steady_clock::now() - begin, 200ms);
  gate->release();
  EXPECT_TRUE(threads_end(gate));
}

TEST(Prefetch, TheDestructorStopsWaitingAndWorkingThreads) {
  for (const int threads : {1, 2, 7}) {
    const auto begin = std::chrono::steady_clock::now();
    {
      Prefetcher<int> prefetcher(1000,
                                 [](std::int64_t, const std::stop_token& stop) {
                                   for (int i = 0; i < 10000 && !stop.stop_requested(); ++i)
                                     std::this_thread::sleep_for(1ms);
                                   return 0;
                                 },
                                 {.threads = threads, .depth = 4});
    }
    EXPECT_LT(std::chrono::steady_clock::now() - begin, 5s);
  }
}

}  // namespace
}  // namespace sluice::data
