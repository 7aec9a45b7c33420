// What stages hold, against sums by hand.
#include "tune/memory.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "tune/memory_model.h"

namespace sluice::tune {
namespace {

constexpr std::int64_t kSamples = 2;

// The second layer saves its input, which is the first one's output; the third saves neither; the loss keeps 3.
std::vector<LayerCost> four_layers() {
  return {{.input_bytes = 5,
           .output_bytes = 7,
           .saved_bytes = {.fixed = 1000, .per_sample = 100},
           .stash_bytes = {.per_sample = 4},
           .parameter_bytes = 10,
           .buffer_bytes = 3,
           .gradient_bytes = 10,
           .optimizer_bytes = 20},
          {.input_bytes = 7,
           .output_bytes = 11,
           .saved_bytes = {.per_sample = 11},
           .saves_input = true,
           .saves_output = true,
           .stash_bytes = {.per_sample = 6}},
          {.input_bytes = 11, .output_bytes = 13, .saves_input = true},
          {.input_bytes = 13, .output_bytes = 17, .loss_bytes = {.per_sample = 3}}};
}

TEST(LiveBytes, CountEveryTensorOnce) {
  const auto layers = four_layers();
  // The input of the model is not saved, the outputs of the third and fourth layers neither.
  const auto whole = live_bytes(layers, kSamples, {.is_first = true, .is_last = true});
  EXPECT_EQ(whole.activation, 1000 + kSamples * (100 + 7 + 11 + 3));
  EXPECT_EQ(whole.stash, kSamples * (4 + 6));
  // A later stage keeps its input, whose gradient it has to give.
  EXPECT_EQ(live_bytes(layers, kSamples, {.is_last = true}).activation, 1000 + kSamples * (5 + 100 + 7 + 11 + 3));
  EXPECT_EQ(live_bytes(std::span(layers).subspan(1, 1), 3, {}).activation, 3 * (7 + 11));
}

TEST(LiveBytes, OfARecomputationAreTheInputsOfItsLayersAndTheGradientOfTheLoss) {
  const auto layers = four_layers();
  EXPECT_EQ(live_bytes(layers, kSamples, {.is_last = true, .recomputes = true}).activation,
            kSamples * (5 + 7 + 11 + 13 + 17));
  EXPECT_EQ(live_bytes(std::span(layers).subspan(1, 2), kSamples, {.recomputes = true}).activation,
            kSamples * (7 + 11));
}

TEST(LiveBytes, OfARecomputationBeginAtTheFirstLayerThatIsTrained) {
  auto layers = four_layers();
  layers[0].parameter_bytes = 0;
  layers[1].parameter_bytes = 8;
  EXPECT_EQ(live_bytes(layers, kSamples, {.is_first = true, .recomputes = true}).activation, kSamples * (7 + 11 + 13));
}

TEST(DeviceBytes, ATensorIsItsMakersWhereMemoryIsShared) {
  const auto layers = four_layers();
  const auto middle = std::span(layers).subspan(1, 2);
  EXPECT_EQ(device_bytes(middle, kSamples, {}, /*shares_memory=*/true).activation, kSamples * 11);
  EXPECT_EQ(device_bytes(middle, kSamples, {}, /*shares_memory=*/true).lent_output.total(), kSamples * 13);
  EXPECT_EQ(device_bytes(middle, kSamples, {}, /*shares_memory=*/false).activation, kSamples * (7 + 11));
  EXPECT_EQ(device_bytes(layers, kSamples, {.is_first = true, .is_last = true}, true).fixed, 43);
  EXPECT_EQ(device_bytes(middle, kSamples, {}, /*shares_memory=*/false).lent_output.total(), 0);
  EXPECT_EQ(device_bytes(middle, kSamples, {.is_last = true}, /*shares_memory=*/true).lent_output.total(), 0);
  // An output that is kept as well counts once.
  const auto second = device_bytes(std::span(layers).subspan(1, 1), kSamples, {}, /*shares_memory=*/true);
  EXPECT_EQ(second.activation, 0);
  EXPECT_EQ(second.lent_gradient.total(), kSamples * 7);
  EXPECT_EQ(device_bytes(std::span(layers).first(2), kSamples, {.is_first = true}, true).lent_gradient.total(), 0);
}

TEST(DeviceBytes, WhatWeightGradientsWaitWithIsItsMakersToo) {
  auto layers = four_layers();
  layers[1].stash_bytes.per_sample = 7 + 11 + 6;
  layers[1].stashes_input = true;
  layers[1].stashes_output_gradient = true;
  const auto second = std::span(layers).subspan(1, 1);
  EXPECT_EQ(device_bytes(second, kSamples, {}, /*shares_memory=*/true).stash, kSamples * 6);
  EXPECT_EQ(device_bytes(second, kSamples, {.is_last = true}, /*shares_memory=*/true).stash, kSamples * (11 + 6));
  EXPECT_EQ(device_bytes(second, kSamples, {}, /*shares_memory=*/false).stash, kSamples * (7 + 11 + 6));
  // How long the neighbours need what they are lent.
  const auto early = device_bytes(second, kSamples, {}, /*shares_memory=*/true);
  EXPECT_EQ(early.lent_output.until_gradient, kSamples * 11);
  EXPECT_EQ(early.lent_gradient.until_gradient, kSamples * 7);
  const StageRole between{.next_stashes_input = true, .previous_stashes_gradient = true};
  const auto late = device_bytes(second, kSamples, between, /*shares_memory=*/true);
  EXPECT_EQ(late.lent_output.until_last, kSamples * 11);
  EXPECT_EQ(late.lent_gradient.until_last, kSamples * 7);
}

TEST(DeviceBytes, TheWorstMomentOfAnActionCounts) {
  // Each sample: the first layer keeps 10 and takes 15 at its worst; the second keeps 2 and takes 9; the loss keeps 4
  // and takes 8, with the gradient of what goes in.
  const std::vector<LayerCost> layers{
      {.output_bytes = 4,
       .saved_bytes = {.per_sample = 10},
       .stash_bytes = {.per_sample = 1},
       .working = {{.per_sample = 15}, {.per_sample = 8}, {.per_sample = 7}, {.per_sample = 5}}},
      {.output_bytes = 4,
       .saved_bytes = {.per_sample = 2},
       .loss_bytes = {.per_sample = 4},
       .loss_working = {.per_sample = 8},
       .stash_bytes = {.per_sample = 3},
       .working = {.forward = {.per_sample = 9},
                   .backward = {.per_sample = 6},
                   .input_gradient = {.per_sample = 4},
                   .weight_gradient = {.per_sample = 2},
                   .held_backward = {.per_sample = 13}}}};
  const auto stage = device_bytes(layers, 1, {.is_first = true, .is_last = true}, true);
  EXPECT_EQ(stage.activation, 16);
  // The loss's 4 on the 12 that the layers keep and the second one's output: 20. The second layer's 9 on the first
  // one's 10 and its output: 23.
  EXPECT_EQ(stage.forward_working, 23);
  // Of 16: the loss's 8 on 12; the second layer's backward on 12 and the gradient of its output: 6 + 4; the first one's
  // on 10 and the gradient of its output: 4 + 8.
  EXPECT_EQ(stage.backward_working, 6);
  // The first one's, with the second one's stash too: 10 + 4 + 7 + 3.
  EXPECT_EQ(stage.input_working, 8);
  EXPECT_EQ(stage.weight_working, 5);
  const auto middle = device_bytes(layers, 1, {}, true);  // no loss; what comes back is the next stage's
  EXPECT_EQ(middle.forward_working, 23);
  // The second layer's, whose output gradient is held until it is done: 13 on the 12 that the stage keeps.
  EXPECT_EQ(middle.backward_working, 13);
  EXPECT_EQ(device_bytes(layers, 1, {}, false).backward_working, 13 + 4) << "a copy of its own";
}

TEST(DeviceBytes, ARecomputingStageComputesTheGradientOfTheLossAtOnce) {
  const std::vector<LayerCost> layers{
      {.output_bytes = 4,
       .saved_bytes = {.per_sample = 10},
       .loss_bytes = {.per_sample = 4},
       .loss_working = {.per_sample = 8},
       .working = {.forward = {.per_sample = 1}, .backward = {.per_sample = 2}, .held_backward = {.per_sample = 3}},
       .parameter_bytes = 1}};
  const auto stage = device_bytes(layers, 1, {.is_last = true, .recomputes = true}, /*shares_memory=*/true);
  EXPECT_EQ(stage.activation, 4);           // that gradient
  EXPECT_EQ(stage.forward_working, 4 + 8);  // on the output
  EXPECT_EQ(stage.backward_working, 10 + 4 + 3);
}

TEST(DeviceBytes, TransformedWeightsAreThereForAStepOrForAnAction) {
  const std::vector<LayerCost> layers{
      {.working = {{.per_sample = 15}, {.per_sample = 8}, {.per_sample = 7}, {}}, .transformed_bytes = 6},
      {.working = {{.per_sample = 1}, {}, {}, {}, {.per_sample = 2}, {.per_sample = 3}}, .transformed_bytes = 100}};
  const auto several = device_bytes(layers, 1, {}, true),
             one = device_bytes(layers, 1, {.one_micro_batch = true}, true);
  EXPECT_EQ(several.fixed, 106);
  EXPECT_EQ(several.forward_working, 15);
  EXPECT_EQ(several.backward_working, 8);
  EXPECT_EQ(one.fixed, 0);
  EXPECT_EQ(one.forward_working, 101);
  EXPECT_EQ(one.backward_working, 102);
  EXPECT_EQ(one.input_working, 103);
}

TEST(DeviceBytes, InAPassOfOneMicroBatchTransformedWeightsTakeWhatWasMeasuredOfThem) {
  const std::vector<LayerCost> layers{{.working = {{.per_sample = 15}, {.per_sample = 8}, {.per_sample = 7}, {}},
                                       .transformed_bytes = 100,
                                       .working_once = WorkingBytes{{16, 15}, {20, 8}, {10, 7}, {}}}};
  const auto several = device_bytes(layers, 1, {.is_last = true}, true),
             one = device_bytes(layers, 1, {.is_last = true, .one_micro_batch = true}, true);
  EXPECT_EQ(several.fixed, 100);
  EXPECT_EQ(several.forward_working, 15);
  EXPECT_EQ(one.fixed, 0);
  EXPECT_EQ(one.forward_working, 15 + 16);
  EXPECT_EQ(one.backward_working, 8 + 20);
  EXPECT_EQ(one.input_working, 7 + 10);
}

TEST(DeviceBytes, ARecomputedLayerIsRunForwardFirst) {
  const std::vector<LayerCost> layers{{.output_bytes = 4,
                                       .saved_bytes = {.per_sample = 10},
                                       .working = {.forward = {.per_sample = 15}, .held_backward = {.per_sample = 8}},
                                       .parameter_bytes = 1}};
  const auto stage = device_bytes(layers, 1, {.recomputes = true}, /*shares_memory=*/false);
  EXPECT_EQ(stage.backward_working, 10 + 4 + 8 + 4);  // and the gradient that it was sent
  EXPECT_EQ(device_bytes(layers, 1, {.recomputes = true}, /*shares_memory=*/true).backward_working, 10 + 4 + 8);
}

// Each of two layers has a device; the second replica takes its weights and their state from the first one's.
TEST(SlotBytes, ReplicasInOneMemoryShareWeightsAndTheirState) {
  std::vector<LayerCost> layers(2, {.saved_bytes = {.per_sample = 7},
                                    .parameter_bytes = 10,
                                    .buffer_bytes = 3,
                                    .gradient_bytes = 10,
                                    .optimizer_bytes = 20});
  layers[1].parameter_bytes = 100;
  const Plan plan{.partition = {{1, 1}}, .replicas = 2, .chunks = 2, .global_batch = 8, .schedule = "gpipe"};
  const auto shared = estimate_slot_bytes({layers, /*shares_memory=*/true}, plan).value();
  ASSERT_EQ(shared.size(), 4U);
  EXPECT_EQ(shared[0], 10U + 3 + 10 + 20 + 4 * 7) << "of four samples";
  EXPECT_EQ(shared[1], 100U + 3 + 10 + 20 + 4 * 7);
  EXPECT_EQ(shared[2], 3U + 10 + 4 * 7);
  EXPECT_EQ(shared[3], shared[2]);
  const auto own = estimate_slot_bytes({layers, /*shares_memory=*/false}, plan).value();
  EXPECT_EQ(own, (std::vector<std::uint64_t>{own[0], own[1], own[0], own[1]}));
  EXPECT_EQ(own[1] - own[0], 90U);
  const auto of_devices = estimate_device_bytes({layers, /*shares_memory=*/false}, plan).value();
  EXPECT_EQ(own[0], of_devices[0] + kCublasBytesOfSlot);
}

TEST(SlotBytes, FrozenLayersLieOnTheFirstDevice) {
  const std::vector<LayerCost> layers(3, {.parameter_bytes = 10, .optimizer_bytes = 20});
  const Plan plan{
      .partition = {{1, 1}}, .replicas = 2, .chunks = 1, .global_batch = 2, .schedule = "gpipe", .frozen_layers = 1};
  EXPECT_EQ(estimate_slot_bytes({layers}, plan).value(), (std::vector<std::uint64_t>{40, 30, 0, 0}));
}

}  // namespace
}  // namespace sluice::tune
