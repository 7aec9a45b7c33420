#include "pipeline/time_limit.h"

#include <gtest/gtest.h>

namespace sluice::pipeline {
namespace {

using namespace std::chrono_literals;

TEST(TimeLimit, AFixedOneStaysWhateverIsMeasured) {
  TimeLimit limit(1500ms);
  EXPECT_EQ(limit.current(), 1500ms);
  limit.add(1h);
  EXPECT_EQ(limit.current(), 1500ms);
}

TEST(TimeLimit, WithoutOneTheFirstTimeMayBeLongAndTheLongestSoFarDecides) {
  TimeLimit limit(0ms);
  EXPECT_EQ(limit.current(), 1h);
  limit.add(10ms);
  EXPECT_EQ(limit.current(), 60s) << "20 times 10 ms would be a pause of the machine";
  limit.add(30s);
  EXPECT_EQ(limit.current(), 600s);
  limit.add(5s);
  EXPECT_EQ(limit.current(), 600s) << "a run that was slow once may be so again";
}

}  // namespace
}  // namespace sluice::pipeline
