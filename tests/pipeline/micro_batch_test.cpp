#include "pipeline/micro_batch.h"

#include <gtest/gtest.h>

#include <ATen/ATen.h>

namespace sluice::pipeline {
namespace {

TEST(SplitSizes, DifferByAtMostOneAndAddUp) {
  EXPECT_EQ(split_sizes(10, 4), (std::vector<std::int64_t>{3, 3, 2, 2}));
  EXPECT_EQ(split_sizes(2, 4), (std::vector<std::int64_t>{1, 1, 0, 0}));
  EXPECT_EQ(split_sizes(0, 2), (std::vector<std::int64_t>{0, 0}));
}

TEST(Split, GivesViewsInOrder) {
  const MicroBatch batch{{at::arange(10).view({5, 2}), {}}, {at::arange(5)}, at::arange(5) + 100};
  const auto parts = split(batch, 2);
  ASSERT_EQ(parts.size(), 2U);
  EXPECT_EQ(parts[0].samples(), 3);
  EXPECT_EQ(parts[0].inputs[0].data_ptr(), batch.inputs[0].data_ptr());
  EXPECT_TRUE(at::equal(parts[1].sample_ids, at::arange(103, 105)));
  EXPECT_TRUE(at::equal(parts[1].targets[0], at::arange(3, 5)));
  EXPECT_FALSE(parts[1].inputs[1].defined()) << "an input that the batch lacks";
}

TEST(Split, KeepsWhatIsKnownOfEachSample) {
  const MicroBatch batch{.inputs = {at::arange(5)},
                         .targets = {at::arange(5)},
                         .sample_ids = at::arange(5),
                         .view = 3,
                         .view_repeats = false,
                         .without_inputs = {true, false, false, true, false}};
  const MicroBatch part = part_of(batch, 2, 5);
  EXPECT_EQ(part.view, 3);
  EXPECT_FALSE(part.view_repeats);
  EXPECT_EQ(part.without_inputs, (std::vector<bool>{false, true, false}));
  const auto parts = split(batch, 2);
  EXPECT_EQ(parts[0].without_inputs, (std::vector<bool>{true, false, false}));
  EXPECT_EQ(parts[1].without_inputs, (std::vector<bool>{true, false}));
  EXPECT_TRUE(split({{at::arange(4)}, {at::arange(4)}, at::arange(4)}, 2)[1].without_inputs.empty());
}

}  // namespace
}  // namespace sluice::pipeline
