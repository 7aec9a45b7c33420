#include "pipeline/schedule/memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/error.h"
#include "pipeline/schedule/draw.h"
#include "pipeline/schedule/generators.h"
#include "pipeline/schedule/inspect.h"
#include "pipeline/schedule/shapes.h"

namespace sluice::pipeline {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

TEST(Memory, AWholeBackwardHoldsActivationsUntilItIsOver) {
  const Schedule schedule = make_1f1b({.stages = 3, .micro_batches = 8});
  const std::vector<StageBytes> stages{{1000, 10, 5}, {2000, 20, 5}, {3000, 40, 5}};
  EXPECT_THAT(peak_bytes(schedule, stages), ElementsAre(1000 + 3 * 10, 2000 + 2 * 20, 3000 + 40));
}

TEST(Memory, FromTheInputGradientOnOnlyTheStashIsHeld) {
  // Device 0: at most 2 activations (0F1), or 1 activation and 1 stash (0F2 after 0I1).
  const Schedule schedule = parse_schedule("0F0 0F1 0I0 0I1 0F2 0W0 0W1 0I2 0W2");
  EXPECT_THAT(peak_bytes(schedule, std::vector<StageBytes>{{0, 10, 3}}), ElementsAre(20));
  EXPECT_THAT(peak_bytes(schedule, std::vector<StageBytes>{{0, 10, 9}}), ElementsAre(28));
  EXPECT_THAT(peak_bytes(schedule, std::vector<StageBytes>{{0, 10, 30}}), ElementsAre(70));  // 2 stashes, 1 activation
}

TEST(Memory, AStashAsLargeAsTheActivationIsThePeakInFlight) {
  test::for_each_shape(5, 12, 3, [](const test::NamedShape& shape) {
    const Schedule schedule = shape.make();
    const std::vector<StageBytes> stages(static_cast<std::size_t>(schedule.stages), {0, 1, 1});
    const auto pairs = peak_in_flight(schedule);
    EXPECT_EQ(peak_bytes(schedule, stages), std::vector<std::int64_t>(pairs.begin(), pairs.end())) << shape.text();
  });
}

TEST(Memory, AllStagesOfADeviceCount) {
  const Schedule schedule = make_zb_v({.stages = 2, .micro_batches = 4});
  const std::vector<StageBytes> stages{{1, 0, 0}, {10, 0, 0}, {100, 0, 0}, {1000, 0, 0}};
  EXPECT_THAT(peak_bytes(schedule, stages), ElementsAre(1001, 110));
}

TEST(Memory, AnEvaluationKeepsOneActivation) {
  const Schedule schedule = make_forward_only(std::vector{0}, 9);
  EXPECT_THAT(peak_bytes(schedule, std::vector<StageBytes>{{7, 10, 10}}), ElementsAre(17));
}

TEST(Memory, ABudgetNamesTheDevice) {
  const Schedule schedule = make_gpipe({.stages = 2, .micro_batches = 4});
  const std::vector<StageBytes> stages{{0, 1024, 0}, {0, 2048, 0}};
  EXPECT_NO_THROW(require_bytes(schedule, stages, 8192));
  EXPECT_THAT([&] { require_bytes(schedule, stages, 8191); },
              ThrowsMessage<ConfigError>(HasSubstr("schedule 'gpipe' needs 8.0 KiB on device 1, more than the")));
}

}  // namespace
}  // namespace sluice::pipeline
