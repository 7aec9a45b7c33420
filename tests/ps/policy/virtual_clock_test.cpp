#include "ps/policy/virtual_clock.h"

#include <gtest/gtest.h>

#include "core/error.h"

namespace sluice::ps {
namespace {

TEST(VirtualClock, PushesArriveByTimeAndThenByWorker) {
  VirtualClock clock;
  clock.schedule_push(WorkerId{2}, 20);
  clock.schedule_push(WorkerId{1}, 20);
  clock.schedule_push(WorkerId{3}, 10);
  EXPECT_EQ(clock.advance(), WorkerId{3});
  EXPECT_EQ(clock.now(), 10);
  clock.schedule_push(WorkerId{0}, 10);
  for (const int worker : {0, 1, 2}) {
    EXPECT_EQ(clock.advance(), WorkerId{worker});
    EXPECT_EQ(clock.now(), 20);
  }
}

TEST(VirtualClock, AnUpdateThatIsDueComesBeforeAPushOfTheSameTime) {
  VirtualClock clock;
  clock.schedule_push(WorkerId{0}, 20);
  EXPECT_EQ(clock.advance(/*due_at=*/20), std::nullopt);
  EXPECT_EQ(clock.now(), 20);
  EXPECT_EQ(clock.advance(/*due_at=*/21), WorkerId{0});
  EXPECT_EQ(clock.advance(/*due_at=*/15), std::nullopt) << "due before";
  EXPECT_EQ(clock.now(), 20) << "time does not go back";
  EXPECT_THROW((void)clock.advance(), BugError);
}

}  // namespace
}  // namespace sluice::ps
