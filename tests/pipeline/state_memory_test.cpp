// What is refused before a model is put on devices that it is too large for.
#include "pipeline/state_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <initializer_list>

#include "core/error.h"
#include "support/toy_model.h"

namespace sluice::pipeline {
namespace {

using ::testing::HasSubstr;

std::vector<LayerState> layers_with(std::uint64_t optimizer_states) {
  return {{"first", 10, 10, 10 * optimizer_states},
          {"second", 30, 30, 30 * optimizer_states},
          {"third", 20, 20, 20 * optimizer_states}};
}

std::vector<device::Device> cpus(std::initializer_list<int> indices) {
  std::vector<device::Device> devices;
  for (const int index : indices) devices.push_back({device::DeviceKind::kCpu, index});
  return devices;
}

std::string refusal_of(const Plan& plan, int optimizer_states, std::uint64_t limit, const ListedSettings& listed = {},
                       const std::vector<device::Device>& devices = cpus({0, 1, 2})) {
  try {
    require_state_memory(plan, devices, layers_with(optimizer_states), limit, listed);
  } catch (const OutOfMemoryError& error) {
    return error.what();
  }
  return "fits";
}

TEST(RequireStateMemory, SaysWhatIsTooMuchAndHowManyStagesWouldDo) {
  const Plan one{.partition = {{3}}};
  EXPECT_EQ(refusal_of(one, 1, 180), "fits");
  EXPECT_EQ(
      refusal_of(one, 1, 179),
      "replica 0 stage 0: out of memory on cpu:0: parameters 60 B, gradients 60 B, optimizer 60 B are 180 B before "
      "any micro-batch, over its device.memory_limit of 179 B; pipeline.stages = 2 would hold them");
  EXPECT_EQ(refusal_of(one, 1, 0), "fits");
  EXPECT_THAT(refusal_of({.partition = {{1, 2}}}, 0, 80, {.partition = true}),
              HasSubstr("another pipeline.partition of 2 stages would"));
  EXPECT_THAT(refusal_of({.partition = {{1, 2}}}, 0, 80), HasSubstr("raise the limit or pipeline.stages"));
  EXPECT_THAT(refusal_of(one, 2, 100), HasSubstr("no number of stages is enough: layer second alone needs 120 B"));
  // Only the gradients are each replica's own.
  EXPECT_EQ(refusal_of({.partition = {{3}}, .replicas = 2}, 1, 180), "fits");
  // A copy of a parameter that is tied has no optimizer state.
  EXPECT_NO_THROW(require_state_memory({.partition = {{2}}}, cpus({0}), {{"embedding", 10, 20}, {"head", 10, 0}}, 60));
}

TEST(RequireStateMemory, NamesTheListsThatOtherStagesChange) {
  const Plan one{.partition = {{3}}};
  EXPECT_THAT(refusal_of({.partition = {{3}}, .schedule = Plan::kFromFile, .schedule_text = "0F0 0B0\n"}, 1, 179),
              HasSubstr("; a pipeline.order of 2 devices would hold them"));
  EXPECT_THAT(refusal_of(one, 1, 179, {.partition = true}),
              HasSubstr("; pipeline.stages = 2 with pipeline.partition = \"auto\" would hold them"));
  EXPECT_THAT(refusal_of(one, 1, 179, {.devices = true}),
              HasSubstr("; pipeline.stages = 2, each on a device of its own in device.list, would hold them"));
  // Two slots on one device: as many stages are enough when each has its own.
  EXPECT_THAT(refusal_of({.partition = {{1, 2}}}, 1, 179, {.devices = true}, cpus({0, 0})),
              HasSubstr("; pipeline.stages = 2, each on a device of its own in device.list, would hold them"));
}

TEST(LayerState, WhatIsNotTrainedHasNeitherGradientNorOptimizerState) {
  const auto layers = test::make_toy_layers(1, 3, 1);  // 9 weights and 3 biases of 8 bytes
  const LayerState trained = layer_state(*layers[0], 2);
  EXPECT_EQ(trained.bytes(), 4U * 96U);
  for (nn::Parameter* parameter : layers[0]->parameters()) parameter->value.requires_grad_(false);
  const LayerState frozen = layer_state(*layers[0], 2);
  EXPECT_EQ(frozen.parameter_bytes, 96U);
  EXPECT_EQ(frozen.bytes(), 96U);
}

TEST(RequireStateMemory, CountsGradientsOfWhatIsTrainedOnly) {
  const std::vector<LayerState> frozen{{"first", 10, 0, 0}, {"second", 30, 0, 0}};
  const Plan plan{.partition = {{2}}};
  EXPECT_NO_THROW(require_state_memory(plan, cpus({0}), frozen, 40));
  EXPECT_THROW(require_state_memory(plan, cpus({0}), frozen, 39), OutOfMemoryError);
}

}  // namespace
}  // namespace sluice::pipeline
