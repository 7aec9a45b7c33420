// checkpoint_support: contents of a checkpoint that identify their step.
#pragma once

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "storage/checkpoint.h"

namespace sluice::storage {

inline CheckpointContents contents_of(std::int64_t step, std::int64_t size = 64) {
  CheckpointContents contents;
  contents.model["layer.weight"] = at::full({size}, static_cast<double>(step), at::kFloat);
  contents.model["layer.count"] = at::full({}, step, at::kLong);
  contents.optimizer["layer.weight/momentum"] = at::full({size}, static_cast<double>(step) / 3.0, at::kDouble);
  contents.state = {{"epoch", step / 10}, {"lr", 0.1}, {"seed", 0xffffffffffffffffU}, {"plan", {{"stages", 2}}}};
  return contents;
}

inline void expect_contents(const CheckpointContents& found, std::int64_t step, std::int64_t size = 64) {
  const auto expected = contents_of(step, size);
  ASSERT_EQ(found.model.size(), expected.model.size());
  for (const auto& [name, tensor] : expected.model) EXPECT_TRUE(found.model.at(name).equal(tensor)) << name;
  ASSERT_EQ(found.optimizer.size(), expected.optimizer.size());
  for (const auto& [name, tensor] : expected.optimizer) EXPECT_TRUE(found.optimizer.at(name).equal(tensor)) << name;
  auto state = expected.state;
  state["step"] = step;
  EXPECT_EQ(found.state, state);
}

}  // namespace sluice::storage
