#include "pipeline/schedule/generators.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "core/error.h"
#include "pipeline/schedule/draw.h"
#include "pipeline/schedule/inspect.h"
#include "pipeline/schedule/validate.h"

namespace sluice::pipeline {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

constexpr int kMostStages = 8;
constexpr int kMostMicroBatches = 16;

template <typename Visit>
void for_each_shape(Visit visit) {
  for (int p = 1; p <= kMostStages; ++p) {
    for (int m = 1; m <= kMostMicroBatches; ++m) visit(PipelineShape{.stages = p, .micro_batches = m});
  }
}

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
  const Schedule schedule = make_forward_only({.stages = 2, .micro_batches = 2});
  EXPECT_EQ(draw(schedule),
            "schedule=forward_only stages=2 micro_batches=2\n"
            "0F0 0F1\n"
            "1F0 1F1\n");
  EXPECT_TRUE(is_forward_only(schedule));
  EXPECT_FALSE(is_forward_only(make_gpipe({})));
}

TEST(Generators, EveryShapeIsValid) {
  for_each_shape([](PipelineShape shape) {
    EXPECT_NO_THROW(validate(make_gpipe(shape)));
    EXPECT_NO_THROW(validate(make_1f1b(shape)));
    EXPECT_NO_THROW(validate(make_forward_only(shape)));
  });
}

TEST(Generators, PeakInFlightFollowsTheFormulas) {
  for_each_shape([](PipelineShape shape) {
    const auto gpipe = peak_in_flight(make_gpipe(shape));
    const auto one_f_one_b = peak_in_flight(make_1f1b(shape));
    const auto forward_only = peak_in_flight(make_forward_only(shape));
    for (int r = 0; r < shape.stages; ++r) {
      const auto device = static_cast<std::size_t>(r);
      EXPECT_EQ(gpipe.at(device), shape.micro_batches);
      EXPECT_EQ(one_f_one_b.at(device), std::min(shape.micro_batches, shape.stages - r));
      EXPECT_EQ(forward_only.at(device), 1);
    }
  });
}

TEST(Generators, EveryStageHasItsDevice) {
  EXPECT_THAT(stage_owners(make_1f1b({.stages = 3, .micro_batches = 1})), ElementsAre(0, 1, 2));
}

TEST(Generators, AreFoundByName) {
  EXPECT_THAT(schedule_names(), ElementsAre("gpipe", "1f1b"));
  for (const auto& name : schedule_names()) EXPECT_EQ(make_schedule(name, {}).name, name);
  EXPECT_THAT([] { (void)make_schedule("1f1", {}); },
              ThrowsMessage<ConfigError>("pipeline.schedule='1f1' is unknown; choose one of: gpipe, 1f1b"));
}

TEST(Generators, RejectEmptyShapes) {
  EXPECT_THAT([] { (void)make_1f1b({.stages = 0}); }, ThrowsMessage<ConfigError>(HasSubstr("pipeline.stages=0")));
  EXPECT_THAT([] { (void)make_gpipe({.micro_batches = -1}); },
              ThrowsMessage<ConfigError>(HasSubstr("pipeline.chunks=-1")));
}

}  // namespace
}  // namespace sluice::pipeline
