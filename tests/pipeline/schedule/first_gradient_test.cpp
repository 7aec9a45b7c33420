// Where a stage's gradient is of fewer samples than the step's: beside sets of micro-batches, for every schedule.
#include "pipeline/schedule/first_gradient.h"

#include <gtest/gtest.h>

#include <set>

#include "pipeline/schedule/shapes.h"

namespace sluice::pipeline::test {
namespace {

// The first position by sets: those that have begun are those that have ended, and not all.
struct Expected {
  std::size_t position = 0;
  std::set<int> micro_batches;
};
std::optional<Expected> first_position(const std::vector<Action>& actions, StageId stage,
                                       const std::vector<std::int64_t>& samples) {
  std::set<int> begun, ended, all;
  for (std::size_t m = 0; m < samples.size(); ++m)
    if (samples[m] > 0) all.insert(static_cast<int>(m));
  for (std::size_t i = 0; i < actions.size(); ++i) {
    const int m = index(actions[i].micro_batch);
    if (actions[i].stage != stage || !all.contains(m)) continue;
    if (makes_input_gradient(actions[i].op)) begun.insert(m);
    if (actions[i].op == Op::kBackward || actions[i].op == Op::kWeightGradient) ended.insert(m);
    if (!begun.empty() && begun == ended) return begun == all ? std::nullopt : std::optional(Expected{i, begun});
  }
  return std::nullopt;
}

TEST(FirstGradient, IsWhereAllThatHasBegunHasEnded) {
  int found = 0, none = 0;
  for_each_shape(4, 8, 3, [&](const NamedShape& shape) {
    const Schedule schedule = shape.make();
    for (const bool has_empty : {false, true}) {
      std::vector<std::int64_t> samples(schedule.micro_batches, 2);
      if (has_empty) samples[0] = 0;
      for (const auto& actions : schedule.devices) {
        for (int stage = 0; stage < schedule.stages; ++stage) {
          const auto expected = first_position(actions, StageId{stage}, samples);
          const auto first = first_gradient(actions, StageId{stage}, samples);
          ASSERT_EQ(first.has_value(), expected.has_value()) << shape.text() << " stage " << stage;
          (first ? found : none) += 1;
          if (!first) continue;
          EXPECT_EQ(actions[expected->position].op, first->op) << shape.text();
          EXPECT_EQ(actions[expected->position].micro_batch, first->last) << shape.text();
          std::set<int> micro_batches;
          for (const MicroBatchId id : first->micro_batches) micro_batches.insert(index(id));
          EXPECT_EQ(micro_batches, expected->micro_batches) << shape.text();
        }
      }
    }
  });
  EXPECT_GT(found, 100);
  EXPECT_GT(none, 100);
}

TEST(FirstGradient, OfWholeBackwardsIsThatOfTheFirst) {
  const Schedule schedule = make_schedule("1f1b", {.stages = 2, .micro_batches = 4});
  const std::vector<std::int64_t> samples{3, 3, 3, 2};
  for (int stage = 0; stage < 2; ++stage) {
    const auto first = first_gradient(schedule.devices[stage], StageId{stage}, samples);
    ASSERT_TRUE(first);
    EXPECT_EQ(first->op, Op::kBackward);
    EXPECT_EQ(first->micro_batches, std::vector{MicroBatchId{0}});
  }
  EXPECT_FALSE(first_gradient(make_schedule("1f1b", {.stages = 1, .micro_batches = 1}).devices[0], StageId{0},
                              std::vector<std::int64_t>{3}));
}

}  // namespace
}  // namespace sluice::pipeline::test
