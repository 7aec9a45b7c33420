#include "pipeline/micro_batch.h"

#include <gtest/gtest.h>

#include <ATen/ATen.h>

#include "core/error.h"

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

// 7 micro-batches of 3 samples, the last of 2, on 2 processes of 2 replicas: 2, 2, 2 and 1 of them.
TEST(DealOut, GivesEachReplicaItsMicroBatchesOfTheWholeStep) {
  const auto batch_of = [](std::int64_t begin, std::int64_t end) {
    return MicroBatch{{at::arange(begin, end).to(at::kFloat)}, {at::arange(begin, end)}, at::arange(begin, end)};
  };
  const auto sizes_of = [](const std::vector<MicroBatch>& of_replica) {
    std::vector<std::int64_t> sizes;
    for (const MicroBatch& own : of_replica) sizes.push_back(own.samples());
    return sizes;
  };
  using Sizes = std::vector<std::int64_t>;
  const MicroBatchParts how{.size = 3, .all = 7, .parts = 4, .first = 0};
  const auto first = deal_out(batch_of(0, 12), how, 2, 3);
  EXPECT_EQ(sizes_of(first[0]), (Sizes{3, 3, 0}));
  EXPECT_EQ(sizes_of(first[1]), (Sizes{3, 3, 0}));
  EXPECT_TRUE(at::equal(first[1][1].sample_ids, at::arange(9, 12)));
  EXPECT_TRUE(at::equal(first[1][1].targets[0], at::arange(9, 12)));
  for (const MicroBatch& own : first[1])
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(own.inputs[0].const_data_ptr()) % 64, 0U) << "kernels may round by it";
  const MicroBatchParts second{.size = 3, .all = 7, .parts = 4, .first = 2};
  EXPECT_EQ(sizes_of(deal_out(batch_of(12, 20), second, 2, 2)[1]), (Sizes{2, 0})) << "the short one";
  EXPECT_THROW(static_cast<void>(deal_out(batch_of(0, 12), how, 2, 1)), BugError) << "too few in the schedule";
  EXPECT_THROW(static_cast<void>(deal_out(batch_of(0, 13), how, 2, 2)), BugError) << "a sample too many";
}

TEST(TrimPadding, CutsWhatIsPaddingInAllSamples) {
  const at::Tensor mask = at::tensor({1, 1, 0, 0, 0, 1, 1, 1, 0, 0}, at::kLong).view({2, 5});
  MicroBatch batch{
      {at::arange(10).view({2, 5}), mask, {}}, {at::arange(10).view({2, 5}), at::arange(2)}, at::arange(2)};
  trim_padding(batch, 1);
  EXPECT_TRUE(at::equal(batch.inputs[0], at::tensor({0, 1, 2, 5, 6, 7}).view({2, 3})));
  EXPECT_EQ(batch.inputs[1].size(1), 3);
  EXPECT_EQ(batch.targets[0].size(1), 3);
  EXPECT_EQ(batch.targets[1].numel(), 2) << "one number a sample";
  MicroBatch without_mask{{at::arange(10).view({2, 5}), {}}, {}, at::arange(2)};
  trim_padding(without_mask, 1);
  trim_padding(without_mask, 7);
  EXPECT_EQ(without_mask.inputs[0].size(1), 5);
}

}  // namespace
}  // namespace sluice::pipeline
