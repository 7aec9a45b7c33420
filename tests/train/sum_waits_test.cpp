// Processes whose clocks are apart tell each other when they were ready for their sums; threads stand in for them.
#include "train/trace/sum_waits.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <utility>
#include <vector>

#include "comm/processes.h"
#include "comm/ranks.h"

namespace sluice::train {
namespace {

using testing::ElementsAre;

constexpr Nanoseconds kHour = 3'600'000'000'000;

void with_communicator(const std::function<void(int rank, const comm::Communicator&)>& body) {
  const int port = comm::test::free_port();
  const auto failures = comm::test::run_ranks(3, [&](int rank) {
    comm::Processes processes(comm::test::world_of(rank, 3, port), {},
                              {std::chrono::seconds(20), std::chrono::seconds(20)});
    body(rank, *processes.make_communicator("sums"));
  });
  EXPECT_THAT(failures, testing::Each(""));
}

profiler::TracedStep step_of(std::vector<BucketSpan> sums) {
  profiler::TracedStep step;
  step.spans.buckets = std::move(sums);
  return step;
}

TEST(SumWaits, TheLastToBeginIsWaitedForByItsOwnClock) {
  with_communicator([](int rank, const comm::Communicator& all) {
    const Nanoseconds ahead = rank * kHour;  // this process's clock
    const std::vector<Nanoseconds> first{10, 40, 25}, second{70, 60, 50};
    const std::vector steps{step_of({{StageId{0}, 0, first[rank] + ahead, 0, 100 + ahead}}),
                            step_of({{StageId{1}, 3, second[rank] + ahead, 0, (rank == 1 ? 65 : 90) + ahead}})};
    const auto times = when_all_were_there(all, ahead, steps);
    ASSERT_TRUE(times);
    // Rank 1 saw the second one's end before the last began, as the clocks' error allows: it did not wait past its end.
    EXPECT_THAT(*times, ElementsAre(40 + ahead, (rank == 1 ? 65 : 70) + ahead));
  });
}

TEST(SumWaits, WhoKnowsOfOtherSumsHasNoAnswer) {
  with_communicator([](int rank, const comm::Communicator& all) {
    const auto known = [&](int stage, int bucket, int more) {
      std::vector<BucketSpan> sums{{StageId{0}, 0, 10, 0, 20}, {StageId{stage}, bucket, 30, 0, 40}};
      sums.resize(2 + more, {StageId{1}, 1, 50, 0, 60});
      const std::vector steps{step_of(sums)};
      return when_all_were_there(all, 0, steps).has_value();
    };
    EXPECT_TRUE(known(1, 0, 0));
    EXPECT_FALSE(known(1, rank == 2 ? 1 : 0, 0));
    EXPECT_FALSE(known(rank == 0 ? 0 : 1, 0, 0));
    EXPECT_FALSE(known(1, 0, rank == 1 ? 1 : 0));
    EXPECT_THAT(when_all_were_there(all, 0, {}), testing::Optional(testing::IsEmpty()));
  });
}

}  // namespace
}  // namespace sluice::train
