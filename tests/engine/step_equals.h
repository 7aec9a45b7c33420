// step_equals: compares one step of a composition with the plain step of one device (reference.h), in float64 to 1e-10.
#pragma once

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "core/concat.h"
#include "engine/reference.h"
#include "engine/train_step.h"

namespace sluice::engine::test {

inline constexpr double kTolerance = 1e-10;
inline constexpr std::uint64_t kSeed = 7;
inline constexpr std::int64_t kStep = 3;

inline nn::ForwardContext training_context(nn::BatchNormMode mode = nn::BatchNormMode::kMicro) {
  return {.training = true, .numerics = {.batch_norm = mode}, .seed = kSeed, .step = kStep};
}

inline storage::TensorMap divided(const storage::TensorMap& tensors, double divisor) {
  storage::TensorMap result;
  for (const auto& [name, tensor] : tensors) result[name] = tensor / divisor;
  return result;
}

inline void expect_step_equals(Composition& grid, const pipeline::MicroBatch& batch, int chunks,
                               const ReferenceStep& reference) {
  SCOPED_TRACE(concat(chunks, " chunks of ", batch.samples(), " samples"));
  TrainStep step(grid, {.seed = kSeed});
  const auto result = step.compute_gradients(batch, kStep, chunks, {.counts_scores = true, .keep_logits = true});
  EXPECT_NEAR(result.stats.loss, reference.loss, kTolerance * reference.loss);
  EXPECT_EQ(result.stats.samples, batch.samples());
  EXPECT_LE(worst_error({{"logits", result.logits}}, {{"logits", reference.logits}}).error, kTolerance);
  const task::Task& task = step.task();
  ASSERT_TRUE(result.stats.scores);
  EXPECT_EQ(result.stats.scores->sums, task.sums_of(task.count({reference.logits}, batch.targets)));
  EXPECT_EQ(result.stats.scores->targets, task.count_targets(batch.targets));
  const auto [error, name] = worst_error(divided(gradient_tensors(grid), result.divisor), reference.gradients);
  EXPECT_LE(error, kTolerance) << name;
}

}  // namespace sluice::engine::test
