#include "freeze/schedule_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.h"

namespace sluice::freeze {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

std::vector<ScheduledFreeze> parse(const std::vector<std::string>& entries) {
  return parse_schedule(entries, "a.toml: freeze.schedule");
}

std::string refusal(const std::vector<std::string>& entries) {
  try {
    (void)parse(entries);
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), StartsWith("a.toml: freeze.schedule"));
    return error.what();
  }
  ADD_FAILURE() << "was taken";
  return "";
}

TEST(ScheduleText, GivesUnitsByEpoch) {
  EXPECT_THAT(parse({"3: 7"}), ElementsAre(ScheduledFreeze{3, 7}));
  EXPECT_THAT(
      parse({"1:0", " 2 : 12 ", "\t9223372036854775807:\t2147483647"}),
      ElementsAre(ScheduledFreeze{1, 0}, ScheduledFreeze{2, 12}, ScheduledFreeze{9223372036854775807, 2147483647}));
}

TEST(ScheduleText, RefusesWhatIsNoEntry) {
  EXPECT_THAT(refusal({}), HasSubstr("is empty; write when to freeze how many units, such as \"3: 7\""));
  EXPECT_THAT(refusal({"7"}), HasSubstr(": \"7\": no ':' after an epoch; write an entry such as \"3: 7\""));
  EXPECT_THAT(refusal({"1: 2", "three: 7"}), HasSubstr(": \"three: 7\": \"three\" is not an epoch"));
  EXPECT_THAT(refusal({"3: many"}),
              HasSubstr("\"many\" is not a number of units; write a whole number from 0 to 2147"));
  for (const char* entry : {"", ":", " : ", "3:", "3: ", ":7", "3 7", "3: 7 8", "3: 7: 8", "3.5: 7", "3: 7.0", "+3: 7",
                            "3: 0x7", "9223372036854775808: 1", "3: 2147483648", "3\n: 7\n"})
    EXPECT_THAT(refusal({entry}), HasSubstr("such as \"3: 7\"")) << entry;
  EXPECT_THAT(refusal({"3: 7\x1b[2J"}), testing::Not(HasSubstr("\x1b")));
}

TEST(ScheduleText, RefusesNegativeNumbersAndEpoch0) {
  EXPECT_THAT(refusal({"-3: 7"}),
              HasSubstr("\"-3\" is not an epoch that may freeze units (epoch 0 never does); write a "
                        "whole number from 1 to"));
  EXPECT_THAT(refusal({"0: 7"}), HasSubstr("\"0\" is not an epoch that may freeze units"));
  EXPECT_THAT(refusal({"3: -7"}), HasSubstr("\"-7\" is not a number of units"));
}

TEST(ScheduleText, RefusesEpochsThatDoNotIncrease) {
  EXPECT_THAT(
      refusal({"1: 2", "3: 7", "2: 4"}),
      HasSubstr("\"2: 4\": comes after the entry of epoch 3; sort the entries by epoch, with one entry per epoch"));
  EXPECT_THAT(refusal({"3: 7", "3: 8"}), HasSubstr("\"3: 8\": comes after the entry of epoch 3"));
}

TEST(ScheduleText, RefusesMoreUnitsThanTheModelHas) {
  const auto schedule = parse({"1: 4", "2: 13"});
  EXPECT_NO_THROW(require_units(schedule, 13, "freeze.schedule"));
  try {
    require_units(schedule, 12, "freeze.schedule");
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_STREQ(error.what(),
                 "freeze.schedule: \"2: 13\": the model has 12 units that may freeze; freeze at most that many");
  }
}

}  // namespace
}  // namespace sluice::freeze
