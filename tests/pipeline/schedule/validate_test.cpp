// validate() against hand-written mistakes: which rule it names, and how. mutation_test.cpp has all the others.
#include "pipeline/schedule/validate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

#include "pipeline/schedule/draw.h"
#include "pipeline/schedule/generators.h"
#include "pipeline/schedule/shapes.h"

namespace sluice::pipeline {
namespace {

using test::verdict;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr std::string_view kInterleaved =
    "schedule=interleaved stages=4 micro_batches=4\n"
    "0F0 0F1 2F0 2F1 0F2 2B0 0F3 2B1 2F2 0B0 2F3 0B1 2B2 2B3 0B2 0B3\n"
    "1F0 1F1 3F0 3B0 3F1 3B1 1F2 1B0 1F3 1B1 3F2 3B2 3F3 3B3 1B2 1B3\n";

std::string verdict(std::string_view text) { return verdict(parse_schedule(text)); }

TEST(Validate, NamesTheRuleTheActionAndWhatWasExpected) {
  EXPECT_THAT(
      verdict("0F0 0B0 0F0"),
      HasSubstr("breaks the rule 'complete': 0F0 occurs twice (device 0, position 0 and device 0, position 2)"));
  EXPECT_THAT(verdict("0F0 0F1 0B0"), HasSubstr("'complete': 0B1 is missing (or 0I1 and 0W1)"));
  EXPECT_THAT(verdict("0F0 0F2 0B0 0B2"), HasSubstr("'complete': 0F1 is missing"));
  EXPECT_THAT(verdict("0F0 1F0\n1B0 0B0"), HasSubstr("'owner': 1B0 is on device 1, expected device 0"));
  EXPECT_THAT(verdict("0B0 0F0"), HasSubstr("'order': 0B0 (device 0, position 0) comes before 0F0"));
  EXPECT_THAT(verdict("0F0 0B0\n-"), HasSubstr("'shape': device 1 has no actions"));
  EXPECT_THAT(verdict("schedule=x stages=1 micro_batches=1\n0F0 0F1"),
              HasSubstr("'range': 0F1 (device 0, position 1) names micro-batch 1, expected 0 to 0"));
  EXPECT_THAT(
      verdict("schedule=x stages=2 micro_batches=1\n0F0 2F0\n1F0 3F0"),  // two devices, but four stages
      HasSubstr("'range': 2F0 (device 0, position 1) names stage 2, expected 0 to 1 (the header's stages= counts "
                "the stages of all devices)"));
  EXPECT_THAT(verdict("schedule=x stages=0 micro_batches=1\n0F0"), HasSubstr("'shape': stages=0"));
  EXPECT_THAT(verdict("schedule=x stages=1 micro_batches=0\n0F0"), HasSubstr("'shape': micro_batches=0"));
  EXPECT_THAT(verdict(Schedule{"two words", 1, 1, {{Action{}}}}), HasSubstr("'shape': its name"));
  EXPECT_THAT(verdict(Schedule{"x", 1, 1, {}}), HasSubstr("'shape': it has no devices"));
}

TEST(Validate, ABackwardIsWholeOrInTwoParts) {
  EXPECT_EQ(verdict("0F0 0I0 0W0 0F1 0B1"), "valid");
  EXPECT_THAT(verdict("0F0 0B0 0I0 0W0"), HasSubstr("'complete': 0B0 and 0I0 both occur; expected B, or I and W"));
  EXPECT_THAT(verdict("0F0 0B0 0W0"), HasSubstr("'complete': 0B0 and 0W0 both occur"));
  EXPECT_THAT(verdict("0F0 0I0"), HasSubstr("'complete': 0W0 is missing"));
  EXPECT_THAT(verdict("0F0 0W0"), HasSubstr("'complete': 0I0 is missing"));
  EXPECT_THAT(verdict("0F0 0W0 0I0"), HasSubstr("'order': 0W0 (device 0, position 1) comes before 0I0"));
  // Counts per operation agree here (2 B, 1 I, 1 W for 2 micro-batches make 3): PyTorch's validator asks only for
  // those.
  EXPECT_THAT(verdict("0F0 0F1 0B0 0I0 0W0"), HasSubstr("'complete': 0B0 and 0I0 both occur"));
}

TEST(Validate, APairIsAForwardAndABackwardThatNeedNothingOfEachOther) {
  EXPECT_EQ(verdict("0F0 (0F1;0B0) 0B1"), "valid");
  EXPECT_EQ(verdict("0F0 (0F1;0I0) 0W0 0B1"), "valid");
  EXPECT_THAT(verdict("(0F0;0B0)"), HasSubstr("'order': 0B0 (device 0, position 1) comes together with 0F0"));
  EXPECT_THAT(verdict("0F0 (0B0;0F1) 0B1"), HasSubstr("'pair': 0B0 (device 0, position 1) overlaps 0F1"));
  EXPECT_THAT(verdict("0F0 0I0 (0F1;0W0) 0B1"), HasSubstr("'pair': 0F1 (device 0, position 2) overlaps 0W0"));
  EXPECT_THAT(verdict(Schedule{"x", 1, 1, {{{.op = Op::kForward, .overlaps_next = true}}}}),
              HasSubstr("overlaps nothing"));
  // One after the other these would run: 1F1 needs 0F1, 0B0 needs 1B0.
  EXPECT_EQ(verdict("0F0 0F1 0B0 0B1\n1F0 1B0 1F1 1B1"), "valid");
  EXPECT_EQ(verdict("0F0 (0F1;0B0) 0B1\n1F0 1B0 1F1 1B1"), "valid");
  EXPECT_THAT(verdict("0F0 (0F1;0B0) 0B1\n1F0 (1F1;1B0) 1B1"), HasSubstr("'progress'"));
}

TEST(Validate, EveryStageIsReducedOnceAfterItsLastGradient) {
  EXPECT_EQ(verdict("0F0 0B0 0REDUCE_GRAD"), "valid");
  EXPECT_EQ(verdict(with_reductions(make_zb_v({.stages = 3, .micro_batches = 7}))), "valid");
  EXPECT_EQ(verdict(with_reductions(make_dualpipe_v({.stages = 3, .micro_batches = 7}))), "valid");
  EXPECT_THAT(verdict("0F0 0F1 0B0 0REDUCE_GRAD 0B1"),
              HasSubstr("'reduce': 0REDUCE_GRAD (device 0, position 3) comes before 0B1 (device 0, position 4)"));
  EXPECT_THAT(verdict("0F0 0I0 0REDUCE_GRAD 0W0"),
              HasSubstr("'reduce': 0REDUCE_GRAD (device 0, position 2) comes before"));
  EXPECT_THAT(verdict("0F0 0B0 0REDUCE_GRAD 0REDUCE_GRAD"), HasSubstr("0REDUCE_GRAD occurs twice"));
  EXPECT_THAT(verdict("0F0 0B0 0REDUCE_GRAD\n1F0 1B0"), HasSubstr("1REDUCE_GRAD is missing"));
}

// Two embeddings that share their weights with two heads: the first and the last stage reduce each pair together.
TEST(Validate, TiedStagesAreReducedTogetherInOneOrder) {
  const Limits tied{.transport = {.receive_buffers = {}, .tied = {{StageId{0}, StageId{3}}, {StageId{1}, StageId{2}}}}};
  const std::string head = "0F0 1F0 1B0 0B0 ";
  const std::string tail = "\n2F0 3F0 3B0 2B0 ";
  const auto order = [&](const std::string& first, const std::string& last) {
    return verdict(parse_schedule(head + first + tail + last), tied);
  };
  EXPECT_EQ(order("0REDUCE_GRAD 1REDUCE_GRAD", "3REDUCE_GRAD 2REDUCE_GRAD"), "valid");
  EXPECT_THAT(order("0REDUCE_GRAD 1REDUCE_GRAD", "2REDUCE_GRAD 3REDUCE_GRAD"),
              HasSubstr("'progress': the devices wait for each other for ever: 0REDUCE_GRAD waits for 3REDUCE_GRAD, "
                        "which is after 2REDUCE_GRAD on device 1, 2REDUCE_GRAD waits for 1REDUCE_GRAD, which is after "
                        "0REDUCE_GRAD on device 0"));
  EXPECT_THAT(order("", ""), HasSubstr("'reduce': stage 0 is tied to others, expected a REDUCE_GRAD for each stage"));
  EXPECT_THAT(verdict(parse_schedule("0F0 0B0"), {.transport = {.receive_buffers = {}, .tied = {{StageId{4}}}}}),
              HasSubstr("'reduce': stage 4 is tied to others, expected 0 to 0"));
  const Schedule reduced = with_reductions(make_gpipe({.stages = 3, .micro_batches = 1}));
  const auto with_groups = [&](const std::vector<std::vector<StageId>>& groups) {
    return verdict(reduced, {.transport = {.receive_buffers = {}, .tied = groups}});
  };
  EXPECT_EQ(with_groups({{StageId{0}, StageId{1}, StageId{2}}}), "valid");
  EXPECT_THAT(with_groups({{StageId{0}, StageId{1}}, {StageId{2}, StageId{0}}}),
              HasSubstr("'reduce': stage 0 is tied twice, expected in one group of tied stages"));
  EXPECT_THAT(with_groups({{StageId{1}, StageId{1}}}), HasSubstr("'reduce': stage 1 is tied twice"));
}

TEST(Validate, MemoryStaysWithinTheBuffers) {
  const Schedule one_f_one_b = make_1f1b({.stages = 3, .micro_batches = 8});
  EXPECT_EQ(verdict(one_f_one_b, {.activations = 3}), "valid");
  EXPECT_THAT(verdict(one_f_one_b, {.activations = 2}),
              HasSubstr("'memory': device 0 has 3 activations in flight at once, expected at most 2"));
  const Schedule zero_bubble = make_zb_h1({.stages = 3, .micro_batches = 8});
  EXPECT_EQ(verdict(zero_bubble, {.activations = 3, .stashes = 3}), "valid");
  EXPECT_THAT(verdict(zero_bubble, {.stashes = 2}),
              HasSubstr("'memory': device 2 has 3 stashed weight gradients at once, expected at most 2"));
}

TEST(Validate, PrintsTheCycle) {
  EXPECT_THAT(verdict("0F0 0B0 0F1 0B1\n"
                      "1F0 1F1 1B0 1B1\n"),
              HasSubstr("'progress': the devices wait for each other for ever: "
                        "0B0 waits for 1B0, which is after 1F1 on device 1, "
                        "1F1 waits for 0F1, which is after 0B0 on device 0;"));
  EXPECT_THAT(verdict("1F0 0F0"), HasSubstr("1F0 waits for 0F0, which is after 1F0 on device 0"));
}

TEST(Validate, SendsAndReceivesHaveOneOrder) {
  EXPECT_THAT(verdict("0F0 0F1\n1F1 1F0"),
              AllOf(HasSubstr("'queue': device 1 next takes the activation for 1F1 from device 0"),
                    HasSubstr("which sends that for 1F0 first")));
  EXPECT_THAT(verdict("0F0 0F1 0B1 0B0\n1F0 1F1 1B0 1B1"), HasSubstr("takes the gradient for 0B1 from device 1"));
}

// A set of (stage, operation) per micro-batch cannot see a second copy; neither can a sum of counts when one action
// replaces another.
TEST(Validate, CountsActionsInsteadOfCollectingThem) {
  EXPECT_THAT(verdict("0F0 0B0 0F1 0B1 0B1"), HasSubstr("0B1 occurs twice"));
  EXPECT_THAT(verdict("0F0 0B0 0F0 0B0"), HasSubstr("0F0 occurs twice"));
}

TEST(Validate, AHugeClaimCostsNothing) {
  EXPECT_THAT(verdict("schedule=x stages=1000000 micro_batches=1000000\n0F0"), HasSubstr("0F1 is missing"));
}

TEST(Validate, AcceptsSeveralStagesPerDevice) { EXPECT_EQ(verdict(kInterleaved), "valid"); }

}  // namespace
}  // namespace sluice::pipeline
