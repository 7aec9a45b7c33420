// pipeline.changes: what an entry may say, and how one that cannot be is refused.
#include "config/changes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/concat.h"
#include "core/error.h"

namespace sluice::config {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using ::testing::ThrowsMessage;

Config parsed(const std::string& changes) {
  return parse("[train]\nglobal_batch = 16\n[pipeline]\nstages = 2\nchanges = " + changes + "\n", "run.toml");
}

std::string error_in(const std::string& changes) {
  try {
    (void)parsed(changes);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(Changes, AddUpInTheirOrder) {
  const Config config = parsed(
      R"(["20: stages = 3, chunks=4", "40 : replicas = 2, stages = 1, schedule = gpipe", "41: partition = [3, 4], stages = 2"])");
  const std::vector<Change> changes = changes_of(config);
  ASSERT_EQ(changes.size(), 3U);
  Config expected = config;
  expected.pipeline.stages = 3;
  expected.pipeline.chunks = 4;
  EXPECT_EQ(changes[0].after, 20);
  EXPECT_EQ(changes[0].config, expected);
  expected.replicas.local = 2;
  expected.pipeline.stages = 1;
  expected.pipeline.schedule = "gpipe";
  EXPECT_EQ(changes[1].after, 40);
  EXPECT_EQ(changes[1].config, expected);
  expected.pipeline.partition = {3, 4};
  expected.pipeline.stages = 2;
  EXPECT_EQ(changes[2].config, expected);
}

TEST(Changes, ValuesAreWrittenAsAfterSet) {
  const auto settings = [](const std::string& entry) { return changes_of(parsed(entry)).front().config.pipeline; };
  EXPECT_EQ(settings(R"(['7: schedule = "gpipe", recompute = layer'])").schedule, "gpipe");
  EXPECT_EQ(settings(R"(['7: schedule = "gpipe", recompute = layer'])").recompute.all, "layer");
  EXPECT_FALSE(settings(R"(["7: chunks = auto"])").chunks);
  EXPECT_EQ(settings(R"(["7: schedule = interleaved, virtual = 3"])").virtual_stages, 3);
}

TEST(Changes, AreKeptByPrintingAndBySet) {
  const Config config = parsed(R"(['20: schedule = "gpipe", chunks = 4'])");
  EXPECT_EQ(parse(to_toml(config), "printed"), config);
  const std::vector<std::string> sets{R"(pipeline.changes=["20: stages = 2", "30: stages = 3"])"};
  EXPECT_EQ(parse("", "run.toml", sets).pipeline.changes.size(), 2U);
  EXPECT_TRUE(parsed("[]").pipeline.changes.empty());
}

TEST(Changes, ThatCannotBeReadSayWhy) {
  EXPECT_EQ(error_in(R"(["20: stagse = 2"])"),
            R"(run.toml:5: pipeline.changes: "20: stagse = 2": unknown key 'stagse'; did you mean 'stages'?)");
  EXPECT_THAT(error_in(R"(["20: lr = 2"])"), HasSubstr("a change may set stages, virtual, chunks"));
  EXPECT_THAT(error_in(R"(["stages = 2"])"), HasSubstr("no ':' after the step"));
  EXPECT_THAT(error_in(R"(["soon: stages = 2"])"), HasSubstr("'soon' is not a number of steps from 1"));
  EXPECT_THAT(error_in(R"(["0: stages = 2"])"), HasSubstr("'0' is not a number of steps from 1"));
  EXPECT_THAT(error_in(R"(["20:"])"), HasSubstr("expected key=value"));
  EXPECT_THAT(error_in(R"(["20: stages"])"), HasSubstr("expected key=value"));
  EXPECT_THAT(error_in(R"(["20: stages = "])"), HasSubstr("no value after '='"));
  EXPECT_THAT(error_in(R"(["20: stages = 2, stages = 3"])"), HasSubstr("stages is set twice"));
  EXPECT_THAT(error_in("[20]"), HasSubstr("pipeline.changes needs an array of strings"));
}

TEST(Changes, OutOfRangeOrAgainstTheRulesAreRefused) {
  EXPECT_THAT(error_in(R"(["20: stages = 0"])"),
              AllOf(StartsWith("run.toml:5: "), HasSubstr("pipeline.stages = 0 is out of range")));
  EXPECT_THAT(error_in(R"(["20: schedule = gpip"])"), HasSubstr("did you mean 'gpipe'?"));
  EXPECT_THAT(error_in(R"(["20: replicas = 17"])"),
              AllOf(StartsWith("run.toml:5: "), HasSubstr("train.global_batch=16 < replicas.local=17")));
  EXPECT_THAT(error_in(R"(["20: partition = [3, 4]", "30: stages = 3"])"),
              AllOf(HasSubstr("30: stages = 3"), HasSubstr("pipeline.partition has 2 entries")));
  EXPECT_THAT(error_in(R"(["20: stages = 3", "20: stages = 1"])"), HasSubstr("its step must be above 20"));
}

TEST(Changes, TheMicroBatchDecidesTheNumberOfChunks) {
  Config config;
  config.train.micro_batch = 4;
  for (const char* const chunks : {"1", "2", "auto"}) {
    config.pipeline.changes = {concat("20: chunks = ", chunks)};
    EXPECT_THAT([&] { (void)changes_of(config); },
                ThrowsMessage<ConfigError>(HasSubstr("train.micro_batch = 4 sets the number of chunks")))
        << chunks;
  }
  config.train.micro_batch = 1;
  config.pipeline.changes = {"20: chunks = 2"};
  EXPECT_THROW((void)changes_of(config), ConfigError) << "of one sample, as well";
  config.pipeline.changes = {"20: stages = 2"};
  EXPECT_EQ(changes_of(config).front().config.pipeline.stages, 2);
}

}  // namespace
}  // namespace sluice::config
