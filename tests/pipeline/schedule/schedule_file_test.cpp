// A schedule file: what is wrong with it is told by its line, and a plan runs it as it stands.
#include "pipeline/schedule/schedule_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/plan.h"
#include "pipeline/schedule/draw.h"
#include "pipeline/schedule/generators.h"
#include "pipeline/schedule/plan_schedule.h"

namespace sluice::pipeline {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

std::string refusal(const auto& action) {
  try {
    action();
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "nothing was refused";
}

std::string refused_file(const std::string& text) {
  return refusal([&] { (void)prove_training_schedule(text, "mine.txt"); });
}

TEST(Order, ABrokenRuleIsToldByTheLineOfItsDevice) {
  const std::string comments = "# mine\n\n";
  EXPECT_THAT(refused_file(comments + "0F0 0B0\n# the last\n1B0 1F0"),
              StartsWith("mine.txt:5: schedule 'custom' breaks the rule 'order': 1B0 (device 1, position 0)"));
  EXPECT_THAT(refused_file(comments + "0F0 0F1 0B0 0B1\n1F0 1F1 1B0"),
              StartsWith("mine.txt:4: schedule 'custom' breaks the rule 'complete': 1B1 is missing (or 1I1 and 1W1) on "
                         "device 1"));
  EXPECT_THAT(
      refused_file(comments + "schedule=x stages=3 micro_batches=1\n0F0 0B0\n1F0 1B0"),
      StartsWith("mine.txt:3: schedule 'x' breaks the rule 'complete': 2F0 is missing, and so is all of stage 2"));
}

TEST(Order, DevicesThatWaitForEachOtherAreAllToldByTheirLines) {
  EXPECT_THAT(refused_file("# mine\n0F0 0B0 0F1 0B1\n1F0 1F1 1B0 1B1"),
              AllOf(StartsWith("mine.txt:3: "), HasSubstr("'progress'"),
                    HasSubstr("(device 1 is line 3, device 0 is line 2)")));
  EXPECT_THAT(refused_file("0F0 0F1 0B0 0B1\n1F1 1B1 1F0 1B0"), HasSubstr("'queue'"));
}

TEST(Order, TrainingNeedsBackwardsAndEqualDevices) {
  EXPECT_EQ(refused_file("# mine\n0F0 1F0\n2F0 3F0"),
            "mine.txt:1: it has forwards only; to train, each needs its B, or its I and W");
  EXPECT_EQ(
      refused_file("# mine\n0F0 1F0 1B0 0B0\n2F0 2B0"),
      "mine.txt:3: device 1 has 1 stage, but device 0 has 2; to train, give every device the same number of stages");
  EXPECT_NO_THROW((void)prove_schedule("0F0 1F0 1B0 0B0\n2F0 2B0", "mine.txt"));
  EXPECT_NO_THROW((void)prove_training_schedule("0F0 0B0\n1F0 1B0", "mine.txt"));
}

TEST(Order, AStreamWithoutEndIsCutOff) {
  std::istringstream endless(std::string((64U << 20U) + 1, ' '));
  EXPECT_EQ(refusal([&] { (void)read_schedule_file(endless, "zeros"); }),
            "zeros: larger than 64.0 MiB; this is not a schedule file");
}

Plan plan_from_file(const std::string& text, int stages, int virtual_stages = 1) {
  return {.partition = {std::vector<int>(stages, 1)},
          .schedule = Plan::kFromFile,
          .schedule_text = text,
          .virtual_stages = virtual_stages};
}

TEST(OrderOfAPlan, IsRunAsItStandsWithItsReductions) {
  const std::string text = "0F1 0F0 0I1 0I0 0W0 0W1\n1F1 1B1 1F0 1B0\n";
  const Plan plan = plan_from_file(text, 2);
  EXPECT_EQ(make_train_schedule(plan, 2),
            parse_schedule("0F1 0F0 0I1 0I0 0W0 0W1 0REDUCE_GRAD\n1F1 1B1 1F0 1B0 1REDUCE_GRAD\n"));
  EXPECT_EQ(least_micro_batches(plan), 2);
  const std::string own = "0F0 1F0 1B0 0B0 0REDUCE_GRAD 1REDUCE_GRAD\n";
  EXPECT_EQ(make_train_schedule(plan_from_file(own, 2, 2), 1), parse_schedule(own));
}

TEST(OrderOfAPlan, SaysWhichDeviceHasWhichStage) {
  EXPECT_THAT(stage_owners(plan_from_file("1F0 1B0\n0F0 0B0\n", 2)), ElementsAre(1, 0));
  EXPECT_THAT(stage_owners(plan_from_file("0F0 3F0 3B0 0B0\n1F0 2F0 2B0 1B0\n", 4, 2)), ElementsAre(0, 1, 1, 0));
}

TEST(OrderOfAPlan, OfANamedScheduleIsThatSchedule) {
  for (const std::string& name : schedule_names()) {
    const int virtual_stages = default_virtual_stages(name), stages = 3 * virtual_stages;
    const Plan named{.partition = {std::vector<int>(stages, 1)}, .schedule = name, .virtual_stages = virtual_stages};
    const std::string text = draw(make_schedule(name, {.stages = 3, .micro_batches = 7}));
    EXPECT_EQ(make_train_schedule(plan_from_file(text, stages, virtual_stages), 7), make_train_schedule(named, 7));
  }
}

TEST(OrderOfAPlan, HasOneShape) {
  const std::string text = "0F0 0F1 0B0 0B1\n1F0 1B0 1F1 1B1\n";
  const auto refused = [&](int stages, int virtual_stages, int chunks) {
    return refusal([&] { (void)make_train_schedule(plan_from_file(text, stages, virtual_stages), chunks); });
  };
  EXPECT_EQ(refused(2, 1, 2), "nothing was refused");
  EXPECT_EQ(refused(2, 1, 4), "the schedule file has 2 micro-batches, but 4 are needed; give another schedule file");
  EXPECT_EQ(
      refused(3, 1, 2),
      "the schedule file has 2 stages on 2 devices, but 3 stages on 3 devices are needed; give another schedule file");
  EXPECT_THAT(refused(2, 2, 2), HasSubstr("but 2 stages on 1 device are needed"));
}

}  // namespace
}  // namespace sluice::pipeline
