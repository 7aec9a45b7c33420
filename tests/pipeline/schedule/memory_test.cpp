#include "pipeline/schedule/memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <set>
#include <vector>

#include "core/error.h"
#include "pipeline/schedule/draw.h"
#include "pipeline/schedule/generators.h"
#include "pipeline/schedule/holds.h"
#include "pipeline/schedule/inspect.h"
#include "pipeline/schedule/random_schedule.h"
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

// While I runs the larger of the two is held: a position has a first half with the activation, a second with the stash.
std::int64_t most_bytes(const std::vector<Action>& actions, const std::vector<StageBytes>& stages) {
  std::vector<test::Hold> holds;
  std::set<StageId> owned;
  for (const auto& [of, life] : test::lives_of(actions)) {
    const StageBytes& stage = stages[static_cast<std::size_t>(index(of.first))];
    const bool is_split = life.release != life.gradient;
    holds.push_back({2 * life.forward, 2 * life.gradient + (is_split ? 0 : 1), stage.activation});
    if (is_split) holds.push_back({2 * life.gradient + 1, 2 * life.release + 1, stage.stash});
    if (owned.insert(of.first).second) holds.push_back({0, 2 * actions.size(), stage.fixed});
  }
  return test::most_at_once(holds);
}

TEST(Memory, RandomSchedulesHoldWhatTheirIntervalsSay) {
  test::Draw draw_of(31);
  int checked = 0;
  for (int trial = 0; trial < 1500; ++trial) {
    const Schedule schedule = test::random_schedule(draw_of, {.stages = 6, .micro_batches = 6, .devices = 3});
    if (!test::is_valid(schedule)) continue;
    std::vector<StageBytes> stages;
    for (int stage = 0; stage < schedule.stages; ++stage)
      stages.push_back({draw_of.between(0, 1000), draw_of.between(0, 100), draw_of.between(0, 100)});
    const auto peaks = peak_bytes(schedule, stages);
    for (std::size_t device = 0; device < peaks.size(); ++device)
      ASSERT_EQ(peaks[device], most_bytes(schedule.devices[device], stages)) << draw(schedule);
    ++checked;
  }
  EXPECT_GT(checked, 300);
}

TEST(Memory, BytesOfADeviceAreSharedByItsStages) {
  const Schedule schedule = make_interleaved({.stages = 2, .micro_batches = 2, .virtual_stages = 3});
  const auto stages = share_bytes(schedule, std::vector<StageBytes>{{11, 9, 1}, {6, 0, 3}});
  ASSERT_EQ(stages.size(), 6U);
  EXPECT_EQ(stages[0].fixed, 5);  // 3 and what is left
  EXPECT_EQ(stages[2].fixed, 3);
  EXPECT_EQ(stages[4].activation, 3);
  EXPECT_EQ(stages[0].stash + stages[2].stash + stages[4].stash, 1);
  EXPECT_EQ(stages[1].fixed, 2);
  EXPECT_EQ(stages[3].stash, 1);
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
  EXPECT_NO_THROW(require_bytes(schedule, stages, std::vector<std::int64_t>{4096, 8192}));
  EXPECT_THAT(
      [&] {
        require_bytes(schedule, stages, std::vector<std::int64_t>{1 << 20, 8191});
      },
      ThrowsMessage<ConfigError>(HasSubstr("schedule 'gpipe' needs 8.0 KiB on device 1, more than the")));
}

}  // namespace
}  // namespace sluice::pipeline
