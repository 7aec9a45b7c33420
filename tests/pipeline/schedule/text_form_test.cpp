// The text form: round trip, the picture in error messages, malformed and fuzzed text.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <random>
#include <string>

#include "core/error.h"
#include "pipeline/schedule/draw.h"
#include "pipeline/schedule/generators.h"
#include "pipeline/schedule/validate.h"

namespace sluice::pipeline {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;
using ::testing::ThrowsMessage;

constexpr std::array kOps{Op::kForward, Op::kBackward, Op::kInputGradient, Op::kWeightGradient, Op::kReduceGradient};

TEST(TextForm, RoundTripsAnyActionsEvenUnsoundOnes) {
  std::mt19937 random(7);
  const auto below = [&](int limit) { return std::uniform_int_distribution<int>(0, limit - 1)(random); };
  for (int trial = 0; trial < 500; ++trial) {
    Schedule schedule{"trial-" + std::to_string(trial), below(kMaxSize), below(kMaxSize), {}};
    schedule.devices.resize(static_cast<std::size_t>(below(4)) + 1);
    for (auto& actions : schedule.devices) {
      for (int i = below(6); i > 0; --i) {
        const Op op = kOps[static_cast<std::size_t>(below(static_cast<int>(kOps.size())))];
        const int micro_batch = op == Op::kReduceGradient ? 0 : below(kMaxSize);
        actions.push_back({op, static_cast<StageId>(below(kMaxSize)), static_cast<MicroBatchId>(micro_batch)});
        const bool may_pair = actions.size() > 1 && !(actions.size() > 2 && actions[actions.size() - 3].overlaps_next);
        if (may_pair && below(3) == 0) actions[actions.size() - 2].overlaps_next = true;
      }
    }
    EXPECT_EQ(parse_schedule(draw(schedule)), schedule);
  }
}

TEST(TextForm, HeaderCommentsAndCommasAreOptional) {
  const Schedule schedule = parse_schedule("# by hand\n0F0,0B0,0F1,0B1\r\n\n 1F0\t1B0 1F1 1B1 # last stage");
  EXPECT_EQ(schedule.name, "custom");
  EXPECT_EQ(schedule.stages, 2);
  EXPECT_EQ(schedule.micro_batches, 2);
  EXPECT_EQ(schedule.devices.size(), 2U);
  EXPECT_NO_THROW(validate(schedule));
}

// As some editors write it; columns are counted behind it.
TEST(TextForm, AByteOrderMarkAtTheStartIsSkipped) {
  EXPECT_EQ(parse_schedule("\xEF\xBB\xBF"
                           "0F0 0B0"),
            parse_schedule("0F0 0B0"));
  EXPECT_THAT(
      [] {
        (void)parse_schedule(
            "\xEF\xBB\xBF"
            "0X0");
      },
      ThrowsMessage<ConfigError>(StartsWith("schedule:1:1: expected an action")));
  EXPECT_THAT(
      [] {
        (void)parse_schedule(
            "0F0\n\xEF\xBB\xBF"
            "1F0");
      },
      ThrowsMessage<ConfigError>(StartsWith("schedule:2:1: expected an action")));
}

// As PyTorch 2.11 writes them: compute_only with empty cells for its bubbles, compute_comms with everything. The test
// torch_schedules_test.py reads whole dumps made by the PyTorch that is installed.
TEST(TextForm, ReadsTheDumpsOfPyTorch) {
  const Schedule schedule = parse_schedule(
      "0F0,0F1,,,0B0,,0B1\r\n"
      ",1F0,1B0,1F1,1B1\r\n");
  EXPECT_EQ(schedule.devices, make_1f1b({.stages = 2, .micro_batches = 2}).devices);
  const Schedule with_all = parse_schedule(
      "0UNSHARD,0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1,0REDUCE_GRAD,0RESHARD\r\n"
      "1UNSHARD,1RECV_F0,1F0,1B0,1SEND_B0,1RECV_F1,1F1,1B1,1SEND_B1,1REDUCE_GRAD,1RESHARD\r\n");
  EXPECT_EQ(with_all.devices, with_reductions(make_1f1b({.stages = 2, .micro_batches = 2})).devices);
  EXPECT_EQ(parse_schedule("0F0,(0F1;0B0)OVERLAP_F_B,0B1\r\n"), parse_schedule("0F0 (0F1;0B0) 0B1"));
}

TEST(TextForm, ErrorsNameLineAndColumn) {
  const auto message_of = [](std::string_view text) -> std::string {
    try {
      (void)parse_schedule(text, "order.txt");
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "accepted";
  };
  EXPECT_EQ(message_of("0F0 0B0\n1F0 1X0\n"),
            "order.txt:2:5: expected an action such as 0F2 (stage; F, B, I or W; micro-batch), found '1X0'");
  EXPECT_THAT(message_of("0F0 F1"), StartsWith("order.txt:1:5: expected an action"));
  EXPECT_THAT(message_of("0F0 0F"), StartsWith("order.txt:1:5: expected an action"));
  EXPECT_THAT(message_of("0F0 0F1x"), StartsWith("order.txt:1:7: expected a number from 0 to 999999, found '1x'"));
  EXPECT_THAT(message_of("0F0 0REDUCE_GRAD1"), StartsWith("order.txt:1:5: expected an action"));
  EXPECT_THAT(message_of("0F0 0I"), StartsWith("order.txt:1:5: expected an action"));
  EXPECT_THAT(message_of("0F0 0OVERLAP_F_B"), StartsWith("order.txt:1:5: expected an action"));
  EXPECT_THAT(message_of("(0F0;0B0"), StartsWith("order.txt:1:1: expected a pair such as (0F3;1B2), found '(0F0;0B0'"));
  EXPECT_THAT(message_of("0F0 (0F1)"), StartsWith("order.txt:1:5: expected a pair"));
  EXPECT_THAT(message_of("()"), StartsWith("order.txt:1:1: expected a pair"));
  EXPECT_THAT(message_of("(0F0;0B0)X"), StartsWith("order.txt:1:1: expected a pair"));
  EXPECT_THAT(message_of("(0F0;0SEND_F0)"), StartsWith("order.txt:1:1: expected a pair"));
  EXPECT_THAT(message_of("(0F0;0B1;0B2)"),
              StartsWith("order.txt:1:8: expected a number from 0 to 999999, found '1;0B2'"));
  EXPECT_THAT(message_of("(0F0;0X0)"), StartsWith("order.txt:1:6: expected an action"));
  EXPECT_THAT(message_of("99999999999F0"), StartsWith("order.txt:1:1: expected a number"));
  EXPECT_THAT(message_of("0F0 -"), StartsWith("order.txt:1:5: expected an action"));
  EXPECT_THAT(message_of("schedule=x stages=two micro_batches=1\n0F0"),
              StartsWith("order.txt:1:19: expected a number"));
  EXPECT_THAT(message_of("schedule=x stages=2\n0F0"), HasSubstr("expected 'schedule=NAME stages=S micro_batches=M'"));
  EXPECT_THAT(message_of("schedule= stages=2 micro_batches=1"), StartsWith("order.txt:1:10: expected a name"));
  EXPECT_THAT(message_of("name=x stages=2 micro_batches=1"), HasSubstr("expected 'schedule=...', found 'name=x'"));
  EXPECT_THAT(message_of("0F0\nschedule=x stages=1 micro_batches=1"), HasSubstr("before the first device"));
  EXPECT_THAT(message_of("# nothing\n"), HasSubstr("no devices"));
  EXPECT_THAT(message_of(""), HasSubstr("order.txt:1:1: no devices"));
}

TEST(TextForm, FuzzedTextGivesAScheduleOrAnError) {
  const std::vector<std::string> seeds{draw(make_1f1b({.stages = 3, .micro_batches = 4})),
                                       draw(with_reductions(make_dualpipe_v({.stages = 2, .micro_batches = 4})))};
  const std::string alphabet = "0123456789FBIW=-#, \n\t\r\xff(;)_";
  std::mt19937 random(11);
  const auto below = [&](std::size_t limit) {
    return std::uniform_int_distribution<std::size_t>(0, limit - 1)(random);
  };
  int accepted = 0;
  int valid = 0;
  for (int trial = 0; trial < 20'000; ++trial) {
    std::string text = seeds[static_cast<std::size_t>(trial) % seeds.size()];
    for (std::size_t edits = 1 + below(4); edits > 0 && !text.empty(); --edits) {
      switch (below(4)) {
        case 0: text.erase(below(text.size()), 1 + below(8)); break;
        case 1: text.insert(below(text.size()), 1, alphabet[below(alphabet.size())]); break;
        case 2: text[below(text.size())] = static_cast<char>(below(256)); break;
        default: text.insert(below(text.size()), text.substr(below(text.size()), below(20))); break;
      }
    }
    try {
      const Schedule schedule = parse_schedule(text);
      EXPECT_EQ(parse_schedule(draw(schedule)), schedule) << text;
      ++accepted;
      validate(schedule);
      ++valid;
    } catch (const ConfigError& error) {
      EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos);
    }
  }
  EXPECT_GT(accepted, 100);
  EXPECT_GT(valid, 10);
}

TEST(Grid, MarksTheCurrentActionOfEveryDeviceAndTheFailedOne) {
  const Schedule schedule = make_1f1b({.stages = 2, .micro_batches = 2});
  EXPECT_EQ(draw_grid(schedule, {.current = {2, 1}, .failed_device = 1}),
            "device 0: 0F0 0F1 [0B0] 0B1\n"
            "device 1: 1F0 [1B0] 1F1 1B1   <-- here: 1B0\n");
  EXPECT_EQ(draw_grid(schedule, {.current = {4, 4}, .failed_device = {}}),
            "device 0: 0F0 0F1 0B0 0B1 (done)\n"
            "device 1: 1F0 1B0 1F1 1B1 (done)\n");
}

TEST(Grid, CutsLongLists) {
  const Schedule schedule = make_gpipe({.stages = 1, .micro_batches = 100});
  EXPECT_EQ(draw_grid(schedule, {.current = {99}, .failed_device = 0}),
            "device 0: ... 0F91 0F92 0F93 0F94 0F95 0F96 0F97 0F98 [0F99] 0B0 0B1 0B2 0B3 0B4 0B5 0B6 0B7 ..."
            "   <-- here: 0F99\n");
  EXPECT_THAT(draw_grid(schedule, {.current = {200}, .failed_device = {}}), HasSubstr("... 0B92"));
  EXPECT_THAT(draw_grid(schedule, {.current = {0}, .failed_device = {}}), StartsWith("device 0: [0F0] 0F1"));
}

}  // namespace
}  // namespace sluice::pipeline
