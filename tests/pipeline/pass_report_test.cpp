#include "pipeline/pass_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "pipeline/schedule/draw.h"

namespace sluice::pipeline {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr Standing kDone{4};

Schedule three_devices() {
  return parse_schedule("schedule=three stages=3 micro_batches=2\n0F0 0F1 0B0 0B1\n1F0 1F1 1B0 1B1\n2F0 2B0 2F1 2B1\n");
}

Schedule two_devices() {
  return parse_schedule("schedule=two stages=2 micro_batches=2\n0F0 0B0 0F1 0B1\n1F0 1B0 1F1 1B1\n");
}

TEST(PassReport, SaysWhatASlotDoesAndWhomItWaitsFor) {
  const Schedule schedule = three_devices();
  const PassReport report(schedule, {{2, Wait::kMessage}, {1, Wait::kMessage}, {0}, kDone, {3}, {2, Wait::kMessage}});
  EXPECT_EQ(report.describe(0),
            "replica 0 stage 0 at action 0B0 (3 of 4, micro-batch 0), which waits for replica 0 stage 1");
  EXPECT_EQ(report.describe(1),
            "replica 0 stage 1 at action 1F1 (2 of 4, micro-batch 1), which waits for replica 0 stage 0");
  EXPECT_EQ(report.describe(2), "replica 0 stage 2 at action 2F0 (1 of 4, micro-batch 0)");
  EXPECT_EQ(report.describe(3), "replica 1 stage 0 after its last action");
  EXPECT_EQ(report.describe(4), "replica 1 stage 1 at action 1B1 (4 of 4, micro-batch 1)");
  EXPECT_EQ(report.describe_action(5), "replica 1 stage 2 at action 2F1 (3 of 4, micro-batch 1)");
}

TEST(PassReport, FollowsTheWaitsToTheSlotThatWaitsForNobody) {
  const Schedule schedule = three_devices();
  const PassReport first(schedule, {{1}, {1, Wait::kMessage}, {2, Wait::kMessage}});
  EXPECT_EQ(first.describe_waits(), "the others wait for replica 0 stage 0 at action 0F1 (2 of 4, micro-batch 1)");
  const PassReport each_replica(schedule, {{1}, {1, Wait::kMessage}, kDone, {2, Wait::kMessage}, {2}, kDone});
  EXPECT_EQ(each_replica.describe_waits(),
            "the others wait for replica 0 stage 0 at action 0F1 (2 of 4, micro-batch 1); "
            "the others wait for replica 1 stage 1 at action 1B0 (3 of 4, micro-batch 0)");
  EXPECT_EQ(PassReport(schedule, {{2}, kDone, {3}}).describe_waits(), "") << "nobody waits for another";
}

// A device that runs both halves of a V waits for itself through the other one.
TEST(PassReport, AStageIsFoundOnTheDeviceThatOwnsIt) {
  const Schedule schedule = parse_schedule("schedule=v stages=4 micro_batches=1\n0F0 3F0 3B0 0B0\n1F0 2F0 2B0 1B0\n");
  const PassReport report(schedule, {{1, Wait::kMessage}, {1}});
  EXPECT_THAT(report.describe(0), HasSubstr("replica 0 stage 3 at action 3F0"));
  EXPECT_THAT(report.describe(0), HasSubstr("which waits for replica 0 stage 2"));
}

TEST(PassReport, NamesACycleOnceWithThoseInItAlone) {
  const Schedule schedule = three_devices();
  // Stage 1 waits for stage 2's gradient, stage 2 for stage 1's activation; stage 0 waits for the two of them.
  const PassReport report(schedule, {{2, Wait::kMessage}, {2, Wait::kMessage}, {0, Wait::kMessage}});
  EXPECT_EQ(report.describe_waits(),
            "they wait for each other: replica 0 stage 1 for replica 0 stage 2 for replica 0 stage 1");
}

TEST(PassReport, ASumWaitsForTheReplicaThatHasNotCome) {
  const Schedule schedule = two_devices();
  // Of replicas 0, 1 and 2 the last is still at an earlier action of the first device.
  const PassReport report(schedule, {{2, Wait::kReplicas}, kDone, {2, Wait::kReplicas}, kDone, {1}, kDone});
  EXPECT_EQ(report.describe(0),
            "replica 0 stage 0 at action 0F1 (3 of 4, micro-batch 1), which waits for replica 2 stage 0");
  EXPECT_EQ(report.describe_waits(), "the others wait for replica 2 stage 0 at action 0B0 (2 of 4, micro-batch 0)");
  const PassReport complete(schedule, {{2, Wait::kReplicas}, kDone, {2, Wait::kReplicas}, kDone});
  EXPECT_EQ(complete.describe_waits(), "") << "all have come: they are about to go on";
}

// Replicas that exchange in different orders: the first device of replica 0 has come to a sum that replica 1 reaches
// only after a message, which needs the sum of the second device, which lacks replica 0.
TEST(PassReport, ACycleMayPassThroughMessagesAndSums) {
  const Schedule schedule = two_devices();
  const PassReport report(schedule,
                          {{0, Wait::kReplicas}, {0, Wait::kMessage}, {1, Wait::kMessage}, {1, Wait::kReplicas}});
  EXPECT_EQ(report.describe_waits(),
            "they wait for each other: replica 0 stage 0 for replica 1 stage 0 for replica 1 stage 1 for "
            "replica 0 stage 1 for replica 0 stage 0");
}

TEST(PassReport, SaysWhetherAllThatIsLeftWaitsForOtherProcesses) {
  const Schedule schedule = two_devices();
  const auto waits = [&](std::vector<Standing> standings) {
    return PassReport(schedule, std::move(standings)).waits_for_processes();
  };
  EXPECT_TRUE(waits({{1, Wait::kProcesses}, {1, Wait::kProcesses}}));
  EXPECT_TRUE(waits({{2, Wait::kProcesses}, kDone}));
  EXPECT_TRUE(waits({{1, Wait::kProcesses}, {2, Wait::kMessage}})) << "one waits for the other, who does";
  EXPECT_TRUE(waits({{1, Wait::kReplicas}, {2, Wait::kMessage}, {1, Wait::kProcesses}, kDone}));
  EXPECT_FALSE(waits({{1, Wait::kProcesses}, {1}})) << "one is at work";
  EXPECT_FALSE(waits({{1, Wait::kReplicas}, kDone, {1}, kDone})) << "the other replica is at work";
  EXPECT_FALSE(waits({{1, Wait::kReplicas}, kDone, {2, Wait::kReplicas}, kDone})) << "they are about to go on";
  EXPECT_FALSE(waits({kDone, kDone}));
  EXPECT_FALSE(waits({{1, Wait::kMessage}, {0, Wait::kMessage}, {1, Wait::kProcesses}, {1, Wait::kProcesses}}))
      << "two wait for each other";
}

TEST(PassReport, TheReplicaThatSpeaksForTheProcessWaitsForTheOthers) {
  const Schedule schedule = two_devices();
  const PassReport report(schedule, {{1, Wait::kReplicas}, {2, Wait::kMessage}, {1, Wait::kProcesses}, kDone});
  const std::string speaker =
      "replica 1 stage 0 at action 0B0 (2 of 4, micro-batch 0), which waits for the other processes";
  EXPECT_EQ(report.describe(2), speaker);
  EXPECT_THAT(report.describe(0), HasSubstr("which waits for replica 1 stage 0"));
  EXPECT_EQ(report.describe_waits(), "the others wait for " + speaker);
  EXPECT_EQ(PassReport(schedule, {{1, Wait::kProcesses}, kDone}).describe_waits(), "") << "there are no others here";
}

TEST(PassReport, DrawsTheReplicasThatAreNotDoneAndTheFailedAction) {
  const Schedule schedule = two_devices();
  const PassReport report(schedule, {kDone, kDone, kDone, {2}});
  EXPECT_THAT(report.draw_unfinished(), Not(HasSubstr("replica 0")));
  EXPECT_THAT(report.draw_unfinished(), HasSubstr("replica 1 ran this schedule (two)"));
  EXPECT_THAT(report.draw_unfinished(), HasSubstr("device 1: 1F0 1B0 [1F1] 1B1\n"));
  EXPECT_THAT(report.draw_failed(3), HasSubstr("device 1: 1F0 1B0 [1F1] 1B1   <-- here: 1F1\n"));
}

}  // namespace
}  // namespace sluice::pipeline
