#include "pipeline/split.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.h"
#include "support/toy_model.h"

namespace sluice::pipeline {
namespace {

std::string refusal(const Partition& partition) {
  try {
    static_cast<void>(split(test::make_toy_layers(4, 2, 1), partition, "toy"));
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(Split, EveryLayerOnceInOrder) {
  const auto stages = split(test::make_toy_layers(4, 2, 1), Partition{{1, 3}}, "toy");
  ASSERT_EQ(stages.size(), 2U);
  EXPECT_EQ(stages[0][0]->name(), "layer0");
  EXPECT_EQ(stages[1].size(), 3U);
  EXPECT_EQ(stages[1][2]->name(), "layer3");
}

TEST(Split, APartitionThatDoesNotFitIsRefusedWithNumbers) {
  EXPECT_THAT(refusal({{1, 1, 1, 1, 1}}),
              ::testing::HasSubstr("5 stages (pipeline.stages x pipeline.virtual) > the 4 layers of toy"));
  EXPECT_THAT(refusal({{4, 0}}), ::testing::HasSubstr("gives stage 1 no layer"));
  EXPECT_THAT(refusal({{2, 3}}), ::testing::HasSubstr("adds up to 5 layers, but toy has 4"));
}

}  // namespace
}  // namespace sluice::pipeline
