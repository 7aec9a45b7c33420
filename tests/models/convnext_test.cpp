// ConvNeXt's own parts. Its numbers: tests/app/public_models_test.py.
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <cmath>

#include "models/support.h"

namespace sluice::models {
namespace {

constexpr std::size_t kFirstBlock = 1, kLastBlock = 21;  // of `tiny`; the stem is layer 0, the head layer 22
constexpr std::int64_t kSamples = 400;

// Weights so large that every block changes the result.
Model tiny_model(double stochastic_depth) {
  ModelOptions options = options_of("convnext", "tiny");
  options.stochastic_depth = stochastic_depth;
  options.draw_weights = false;
  Model model = make_model(options);
  at::manual_seed(31);
  for (const std::size_t layer : {kFirstBlock, kLastBlock}) {
    for (nn::Parameter* parameter : model.layers[layer]->parameters())
      parameter->value = at::randn(parameter->value.sizes());
  }
  return model;
}

// [N] bool: samples that the block changes; numbered from `first`.
at::Tensor changed(Model& model, std::size_t layer, const at::Tensor& x, std::int64_t first, bool training = true) {
  const at::Tensor y = model.layers[layer]->forward(
      x, {.training = training, .seed = 3, .step = 9, .sample_ids = at::arange(first, first + x.size(0))});
  return (y - x).abs().flatten(1).amax(1) > 0;
}

TEST(StochasticDepth, LeavesWholeSamplesAsTheyAreTheLastBlockMostOften) {
  const at::NoGradGuard no_grad;
  Model model = tiny_model(0.4);
  const at::Tensor first = at::randn({kSamples, 96, 2, 2}), last = at::randn({kSamples, 768, 1, 1});
  EXPECT_TRUE(changed(model, kFirstBlock, first, 0).all().item<bool>());
  const at::Tensor kept = changed(model, kLastBlock, last, 0);
  EXPECT_NEAR(kept.to(at::kDouble).mean().item<double>(), 0.6, 4 * std::sqrt(0.6 * 0.4 / kSamples));
  EXPECT_TRUE(changed(model, kLastBlock, last, 0, /*training=*/false).all().item<bool>());
  const at::Tensor parts = at::cat({changed(model, kLastBlock, last.narrow(0, 0, 150), 0),
                                    changed(model, kLastBlock, last.narrow(0, 150, kSamples - 150), 150)});
  EXPECT_TRUE(at::equal(parts, kept)) << "the chunking decides";
}

TEST(StochasticDepth, ScalesWhatItKeeps) {
  const at::NoGradGuard no_grad;
  Model with = tiny_model(0.5), without = tiny_model(0);
  const at::Tensor x = at::randn({50, 768, 1, 1});
  const nn::ForwardContext context{.training = true, .sample_ids = at::arange(50)};
  const at::Tensor kept = with.layers[kLastBlock]->forward(x, context) - x;
  const at::Tensor whole = without.layers[kLastBlock]->forward(x, context) - x;
  const at::Tensor ran = kept.abs().amax({1, 2, 3}, true) > 0;
  EXPECT_TRUE(at::allclose(kept, 2 * whole * ran, 1e-4, 1e-4));
}

}  // namespace
}  // namespace sluice::models
