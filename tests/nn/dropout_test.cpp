#include "nn/dropout.h"

#include <gtest/gtest.h>

#include "core/error.h"
#include "nn/attention.h"
#include "nn/compare.h"

namespace sluice::nn {
namespace {

ForwardContext context_of(std::int64_t first, std::int64_t count, std::int64_t step = 4) {
  return {.training = true, .seed = 11, .step = step, .sample_ids = at::arange(first, first + count, at::kLong)};
}

TEST(Dropout, MaskDoesNotDependOnTheChunking) {
  const at::Tensor x = at::ones({6, 5, 7});
  const at::Tensor whole = dropout(x, 0.4, "layer", context_of(100, 6));
  const at::Tensor parts = at::cat({dropout(x.narrow(0, 0, 4), 0.4, "layer", context_of(100, 4)),
                                    dropout(x.narrow(0, 4, 2), 0.4, "layer", context_of(104, 2))});
  EXPECT_TRUE(at::equal(whole, parts));
}

TEST(Dropout, MaskDependsOnSampleStepSeedAndSite) {
  const at::Tensor x = at::ones({1, 256});
  const at::Tensor mask = dropout(x, 0.5, "layer", context_of(3, 1));
  ForwardContext other_seed = context_of(3, 1);
  other_seed.seed = 12;
  EXPECT_TRUE(at::equal(mask, dropout(x, 0.5, "layer", context_of(3, 1))));
  EXPECT_FALSE(at::equal(mask, dropout(x, 0.5, "layer", context_of(4, 1))));
  EXPECT_FALSE(at::equal(mask, dropout(x, 0.5, "layer", context_of(3, 1, 5))));
  EXPECT_FALSE(at::equal(mask, dropout(x, 0.5, "layer", other_seed)));
  EXPECT_FALSE(at::equal(mask, dropout(x, 0.5, "other", context_of(3, 1))));
}

TEST(Dropout, AStepInMemoryStandsForTheNumberOfTheStep) {
  const at::Tensor x = at::randn({3, 256}), step = at::zeros({1}, at::kLong);
  ForwardContext context = context_of(3, 3, 4);
  context.step_in_memory = step;
  for (const std::int64_t number : {0, 7, 1'000'000}) {
    step.fill_(number);
    EXPECT_TRUE(at::equal(dropout(x, 0.5, "layer", context), dropout(x, 0.5, "layer", context_of(3, 3, number))));
  }
}

TEST(Dropout, KeepsTheExpectationAndTwoValuesOnly) {
  const at::Tensor mask = dropout_mask(at::ones({50, 4001}, at::kDouble), 0.25, "layer", context_of(0, 50));
  EXPECT_EQ(mask.scalar_type(), at::kDouble);
  EXPECT_NEAR(mask.mean().item<double>(), 1.0, 0.005);
  const at::Tensor kept = mask.gt(0);
  EXPECT_NEAR(kept.to(at::kDouble).mean().item<double>(), 0.75, 0.004);
  EXPECT_LE((mask - kept * (1 / 0.75)).abs().max().item<double>(), 1e-6);
}

TEST(Dropout, IsTheIdentityOutsideTraining) {
  const at::Tensor x = at::randn({2, 3});
  EXPECT_TRUE(at::equal(dropout(x, 0.9, "layer", {}), x));
}

TEST(Dropout, RefusesSampleIdsThatDoNotFit) {
  EXPECT_THROW(dropout(at::ones({3, 2}), 0.5, "layer", context_of(0, 2)), BugError);
}

TEST(Dropout, AttentionUsesTheKeyedMaskOnEveryChunking) {
  at::manual_seed(7);
  const at::Tensor packed = at::randn({4, 9, 3 * 32});
  const AttentionOptions options{.heads = 2, .dropout = 0.3, .site = "attention"};
  const at::Tensor whole = self_attention(packed, options, context_of(20, 4));
  const at::Tensor parts = at::cat({self_attention(packed.narrow(0, 0, 1), options, context_of(20, 1)),
                                    self_attention(packed.narrow(0, 1, 3), options, context_of(21, 3))});
  EXPECT_LE(relative_error(parts, whole), 1e-6);
  EXPECT_GE(relative_error(self_attention(packed, {.heads = 2, .site = "attention"}, {}), whole), 1e-2);
}

}  // namespace
}  // namespace sluice::nn
