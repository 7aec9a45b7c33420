#include "data/prefetch.h"

#include <gmock/gmock.h>

#include <atomic>
#include <string>

namespace sluice::data {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;
using testing::ThrowsMessage;

std::string thing(std::int64_t number) { return concat("thing ", number); }

TEST(Prefetch, HandsThingsOutInOrderForAnyNumberOfWorkers) {
  for (const int workers : {0, 1, 2, 3, 7}) {
    for (const int depth : {1, 2, 5}) {
      Prefetcher<std::string> prefetcher(
          40,
          [](std::int64_t number, const std::stop_token&) {
            std::this_thread::sleep_for(std::chrono::microseconds(number * 37 % 11 * 20));
            return thing(number);
          },
          {.workers = workers, .depth = depth});
      for (std::int64_t i = 0; i < 40; ++i) ASSERT_EQ(prefetcher.next(), thing(i));
      EXPECT_EQ(prefetcher.next(), std::nullopt);
      EXPECT_EQ(prefetcher.next(), std::nullopt);
    }
  }
}

TEST(Prefetch, MakesNoMoreThanDepthAhead) {
  std::atomic<std::int64_t> most{-1};
  Prefetcher<int> prefetcher(1000,
                             [&](std::int64_t number, const std::stop_token&) {
                               most = std::max(most.load(), number);
                               return 0;
                             },
                             {.workers = 1, .depth = 3});
  prefetcher.next();
  std::this_thread::sleep_for(50ms);
  EXPECT_LE(most.load(), 3);
}

TEST(Prefetch, AFailureComesOnceInItsTurnAndEndsTheSequence) {
  for (const int workers : {0, 1, 3}) {
    Prefetcher<std::string> prefetcher(20,
                                       [](std::int64_t number, const std::stop_token&) {
                                         if (number >= 5) throw DataError(thing(number));
                                         return thing(number);
                                       },
                                       {.workers = workers, .depth = 8});
    for (std::int64_t i = 0; i < 5; ++i) ASSERT_EQ(prefetcher.next(), thing(i));
    EXPECT_THAT([&] { prefetcher.next(); }, ThrowsMessage<DataError>(HasSubstr("thing 5")));
    EXPECT_THAT([&] { prefetcher.next(); }, ThrowsMessage<BugError>(HasSubstr("has failed")));
  }
}

TEST(Prefetch, AHangingMakerIsReportedAndMayStillCome) {
  std::atomic<bool> released{false};
  Prefetcher<int> prefetcher(1,
                             [&](std::int64_t, const std::stop_token&) {
                               released.wait(false);
                               return 7;
                             },
                             {.workers = 1, .depth = 1, .wait_limit = 20ms});
  EXPECT_THAT([&] { prefetcher.next(); }, ThrowsMessage<DataError>(HasSubstr("no batch came within 20 ms")));
  released = true;
  released.notify_all();
  std::optional<int> late;
  for (int tries = 0; tries < 200 && !late; ++tries) {
    try {
      late = prefetcher.next();
    } catch (const DataError&) {
      std::this_thread::yield();  // the maker was not scheduled yet
    }
  }
  EXPECT_EQ(late, 7);
}

TEST(Prefetch, TheDestructorStopsWaitingAndWorkingThreads) {
  for (const int workers : {1, 2, 7}) {
    const auto begin = std::chrono::steady_clock::now();
    {
      Prefetcher<int> prefetcher(1000,
                                 [](std::int64_t, const std::stop_token& stop) {
                                   for (int i = 0; i < 10000 && !stop.stop_requested(); ++i)
                                     std::this_thread::sleep_for(1ms);
                                   return 0;
                                 },
                                 {.workers = workers, .depth = 4});
    }
    EXPECT_LT(std::chrono::steady_clock::now() - begin, 5s);
  }
}

}  // namespace
}  // namespace sluice::data
