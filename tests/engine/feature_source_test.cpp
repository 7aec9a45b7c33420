// Who keeps what frozen layers make is told of their weights.
#include <gtest/gtest.h>

#include "engine/frozen_shapes.h"
#include "engine/kept_features.h"

namespace sluice::engine::test {
namespace {

TEST(FeatureSource, IsToldOfNewWeightsOnce) {
  const auto kept = std::make_shared<KeptFeatures>();
  EngineOptions options = options_of({"vit", 2});
  options.compose.features = kept;
  Engine engine(plan_of({"vit", 2}), options);
  const auto times_told = [&] {
    static_cast<void>(engine.step().run({make_batch(8)}, 0, /*lr=*/0.01));
    return kept->followed.size();
  };
  EXPECT_EQ(times_told(), 1U);
  EXPECT_EQ(times_told(), 1U);
  engine.load(engine.capture(), "itself");
  EXPECT_EQ(times_told(), 2U);
  engine.apply(plan_of({"vit", 3}));
  EXPECT_EQ(kept->followed.size(), 3U) << "the change itself takes the rows along";
  engine.apply(plan_of({"vit", 0}));
  EXPECT_EQ(kept->followed.back(), nullptr);
}

}  // namespace
}  // namespace sluice::engine::test
