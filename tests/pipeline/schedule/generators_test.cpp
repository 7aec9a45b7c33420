#include "pipeline/schedule/generators.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.h"
#include "pipeline/schedule/draw.h"
#include "pipeline/schedule/inspect.h"

namespace sluice::pipeline {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

TEST(Generators, OneForwardOneBackwardGoldenOrder) {
  EXPECT_EQ(draw(make_1f1b({.stages = 4, .micro_batches = 8})),
            "schedule=1f1b stages=4 micro_batches=8\n"
            "0F0 0F1 0F2 0F3 0B0 0F4 0B1 0F5 0B2 0F6 0B3 0F7 0B4 0B5 0B6 0B7\n"
            "1F0 1F1 1F2 1B0 1F3 1B1 1F4 1B2 1F5 1B3 1F6 1B4 1F7 1B5 1B6 1B7\n"
            "2F0 2F1 2B0 2F2 2B1 2F3 2B2 2F4 2B3 2F5 2B4 2F6 2B5 2F7 2B6 2B7\n"
            "3F0 3B0 3F1 3B1 3F2 3B2 3F3 3B3 3F4 3B4 3F5 3B5 3F6 3B6 3F7 3B7\n");
}

TEST(Generators, FewerMicroBatchesThanStages) {
  EXPECT_EQ(draw(make_1f1b({.stages = 3, .micro_batches = 2})),
            "schedule=1f1b stages=3 micro_batches=2\n"
            "0F0 0F1 0B0 0B1\n"
            "1F0 1F1 1B0 1B1\n"
            "2F0 2B0 2F1 2B1\n");
}

TEST(Generators, GpipeRunsEveryForwardFirst) {
  EXPECT_EQ(draw(make_gpipe({.stages = 2, .micro_batches = 3})),
            "schedule=gpipe stages=2 micro_batches=3\n"
            "0F0 0F1 0F2 0B0 0B1 0B2\n"
            "1F0 1F1 1F2 1B0 1B1 1B2\n");
}

TEST(Generators, ForwardOnlyHasNoBackward) {
  const Schedule schedule = make_forward_only(std::vector{0, 1}, 2);
  EXPECT_EQ(draw(schedule),
            "schedule=forward_only stages=2 micro_batches=2\n"
            "0F0 0F1\n"
            "1F0 1F1\n");
  EXPECT_TRUE(is_forward_only(schedule));
  EXPECT_FALSE(is_forward_only(make_gpipe({})));
}

TEST(Generators, EagerOneForwardOneBackwardWarmsUpTwiceAsLong) {
  EXPECT_EQ(draw(make_eager_1f1b({.stages = 3, .micro_batches = 6})),
            "schedule=eager-1f1b stages=3 micro_batches=6\n"
            "0F0 0F1 0F2 0F3 0F4 0B0 0F5 0B1 0B2 0B3 0B4 0B5\n"
            "1F0 1F1 1F2 1B0 1F3 1B1 1F4 1B2 1F5 1B3 1B4 1B5\n"
            "2F0 2B0 2F1 2B1 2F2 2B2 2F3 2B3 2F4 2B4 2F5 2B5\n");
}

// Of the reference notes, which have them from PyTorch.
TEST(Generators, InterleavedGoldenOrder) {
  EXPECT_EQ(draw(make_interleaved({.stages = 2, .micro_batches = 4})),
            "schedule=interleaved stages=4 micro_batches=4\n"
            "0F0 0F1 2F0 2F1 0F2 2B0 0F3 2B1 2F2 0B0 2F3 0B1 2B2 2B3 0B2 0B3\n"
            "1F0 1F1 3F0 3B0 3F1 3B1 1F2 1B0 1F3 1B1 3F2 3B2 3F3 3B3 1B2 1B3\n");
}

TEST(Generators, InterleavedGroupsAreAsEqualAsTheMicroBatchesAllow) {
  EXPECT_EQ(draw(make_interleaved({.stages = 2, .micro_batches = 5})),
            "schedule=interleaved stages=4 micro_batches=5\n"
            "0F0 0F1 0F2 2F0 2F1 2F2 2B0 0F3 2B1 0F4 2B2 2F3 0B0 2F4 0B1 0B2 2B3 2B4 0B3 0B4\n"
            "1F0 1F1 1F2 3F0 3B0 3F1 3B1 3F2 3B2 1F3 1B0 1F4 1B1 3F3 1B2 3F4 3B3 3B4 1B3 1B4\n");
}

TEST(Generators, LoopedBreadthFirst) {
  EXPECT_EQ(draw(make_looped_bfs({.stages = 2, .micro_batches = 2})),
            "schedule=looped-bfs stages=4 micro_batches=2\n"
            "0F0 0F1 2F0 2F1 2B1 2B0 0B1 0B0\n"
            "1F0 1F1 3F0 3F1 3B1 3B0 1B1 1B0\n");
}

TEST(Generators, ZeroBubbleH1GoldenOrder) {
  const Schedule schedule = make_zb_h1({.stages = 4, .micro_batches = 8});
  EXPECT_EQ(draw(schedule),
            "schedule=zb-h1 stages=4 micro_batches=8\n"
            "0F0 0F1 0F2 0F3 0I0 0W0 0F4 0I1 0W1 0F5 0I2 0W2 0F6 0I3 0W3 0F7 0I4 0W4 0I5 0W5 0I6 0W6 0I7 0W7\n"
            "1F0 1F1 1F2 1I0 1F3 1I1 1W0 1F4 1I2 1W1 1F5 1I3 1W2 1F6 1I4 1W3 1F7 1I5 1W4 1I6 1W5 1I7 1W6 1W7\n"
            "2F0 2F1 2I0 2F2 2I1 2F3 2I2 2W0 2F4 2I3 2W1 2F5 2I4 2W2 2F6 2I5 2W3 2F7 2I6 2W4 2I7 2W5 2W6 2W7\n"
            "3F0 3I0 3F1 3I1 3F2 3I2 3F3 3I3 3W0 3F4 3I4 3W1 3F5 3I5 3W2 3F6 3I6 3W3 3F7 3I7 3W4 3W5 3W6 3W7\n");
}

TEST(Generators, ZeroBubbleH2HasTwoForwardsMorePerDeviceBehind) {
  EXPECT_EQ(draw(make_zb_h2({.stages = 2, .micro_batches = 4})),
            "schedule=zb-h2 stages=2 micro_batches=4\n"
            "0F0 0F1 0F2 0I0 0W0 0F3 0I1 0W1 0I2 0W2 0I3 0W3\n"
            "1F0 1I0 1F1 1I1 1F2 1I2 1W0 1F3 1I3 1W1 1W2 1W3\n");
}

TEST(Generators, ZeroBubbleVGoldenOrder) {
  EXPECT_EQ(draw(make_zb_v({.stages = 2, .micro_batches = 4})),
            "schedule=zb-v stages=4 micro_batches=4\n"
            "0F0 0F1 0F2 3F0 3I0 3W0 3F1 3I1 3W1 0F3 0I0 0W0 3F2 3I2 3W2 0I1 0W1 3F3 3I3 3W3 0I2 0W2 0I3 0W3\n"
            "1F0 2F0 1F1 2F1 2I0 2W0 1F2 1I0 1W0 2F2 2I1 2W1 1F3 1I1 1W1 2F3 2I2 2W2 1I2 2I3 1I3 1W2 2W3 1W3\n");
}

TEST(Generators, DualPipeVGoldenOrder) {
  EXPECT_EQ(draw(make_dualpipe_v({.stages = 2, .micro_batches = 4})),
            "schedule=dualpipe-v stages=4 micro_batches=4\n"
            "0F0 0F1 0F2 3F0 3I0 3W0 3F1 (0F3;3B1) (3F2;0B0) 3B2 (3F3;0B1) 3B3 0I2 0W2 0I3 0W3\n"
            "1F0 2F0 1F1 2F1 1F2 2B0 (2F2;1B0) (1F3;2B1) (2F3;1B1) 2B2 1B2 2I3 1I3 2W3 1W3\n");
}

TEST(Generators, ReductionsFollowTheLastGradientOfTheirStage) {
  EXPECT_EQ(draw(with_reductions(make_dualpipe_v({.stages = 1, .micro_batches = 2}))),
            "schedule=dualpipe-v stages=2 micro_batches=2\n"
            "0F0 1F0 0F1 1B0 (1F1;0B0) 1B1 1REDUCE_GRAD 0I1 0W1 0REDUCE_GRAD\n");
}

TEST(Generators, ForwardOnlyHasOneMicroBatchInFlight) {
  for (const int peak : peak_in_flight(make_forward_only(std::vector{0, 1, 2, 3}, 9))) EXPECT_EQ(peak, 1);
}

TEST(Generators, EveryStageHasItsDevice) {
  EXPECT_THAT(stage_owners(make_1f1b({.stages = 3, .micro_batches = 1})), ElementsAre(0, 1, 2));
  EXPECT_THAT(stage_owners(make_interleaved({.stages = 3, .micro_batches = 1})), ElementsAre(0, 1, 2, 0, 1, 2));
  EXPECT_THAT(stage_owners(make_zb_v({.stages = 3, .micro_batches = 1})), ElementsAre(0, 1, 2, 2, 1, 0));
}

TEST(Generators, AreFoundByName) {
  EXPECT_THAT(schedule_names(), ElementsAre("gpipe", "1f1b", "eager-1f1b", "interleaved", "looped-bfs", "zb-h1",
                                            "zb-h2", "zb-v", "dualpipe-v"));
  for (const auto& name : schedule_names()) EXPECT_EQ(make_schedule(name, {.micro_batches = 2}).name, name);
  EXPECT_THAT([] { (void)make_schedule("1f1", {}); },
              ThrowsMessage<ConfigError>("unknown schedule '1f1'; choose one of: gpipe, 1f1b, eager-1f1b, interleaved, "
                                         "looped-bfs, zb-h1, zb-h2, zb-v, dualpipe-v; did you mean '1f1b'?"));
}

TEST(Generators, RejectEmptyShapes) {
  EXPECT_THAT([] { (void)make_1f1b({.stages = 0}); }, ThrowsMessage<ConfigError>(HasSubstr("pipeline.stages=0")));
  EXPECT_THAT([] { (void)make_gpipe({.micro_batches = -1}); },
              ThrowsMessage<ConfigError>(HasSubstr("pipeline.chunks=-1")));
}

}  // namespace
}  // namespace sluice::pipeline
