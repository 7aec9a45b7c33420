// VGG-16 has 134 million parameters, so only the tested layers get values. The whole model: the long tests
// models_equal_torch_vgg16*.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <array>

#include "models/support.h"

namespace sluice::models {
namespace {

constexpr std::size_t kConvolutions = 13, kSecondHidden = 14;

ModelOptions without_values(const std::string& name) {
  ModelOptions options = options_of(name);
  options.dtype = at::kDouble;
  options.draw_weights = false;
  return options;
}

void fill(nn::Layer& layer) {
  for (auto* p : layer.parameters()) p->value = (at::randn(p->value.sizes(), at::kDouble) * 0.05).requires_grad_();
}

at::Tensor reference(nn::Layer& layer, const at::Tensor& x, bool pools) {
  const auto p = layer.parameters();
  at::Tensor y = at::conv2d(x, p[0]->value, p[1]->value, 1, 1);
  if (p.size() == 4) y = at::batch_norm(y, p[2]->value, p[3]->value, {}, {}, true, 0.1, 1e-5, false);
  y = at::relu(y);
  return pools ? at::max_pool2d(y, 2, 2) : y;
}

class Vgg : public testing::TestWithParam<const char*> {};

TEST_P(Vgg, HasTheNamesAndShapesOfTorchvision) {
  EXPECT_EQ(describe(without_values(GetParam())), golden(concat(GetParam(), "_parameters.txt")));
}

TEST_P(Vgg, FeaturesEqualPlainAten) {
  at::manual_seed(6);
  const Model model = make_model(without_values(GetParam()));
  at::Tensor ours = at::randn({2, 3, 32, 32}, at::kDouble), theirs = ours;
  for (std::size_t i = 0; i < kConvolutions; ++i) {
    constexpr std::array<std::size_t, 5> kPooled{1, 3, 6, 9, 12};
    fill(*model.layers[i]);
    theirs = reference(*model.layers[i], theirs, std::ranges::find(kPooled, i) != kPooled.end());
    ours = model.layers[i]->forward(ours, {.training = true});
  }
  ASSERT_EQ(ours.sizes(), (std::vector<std::int64_t>{2, 512, 1, 1}));
  EXPECT_TRUE(at::allclose(ours, theirs, 1e-10, 1e-12));

  theirs.square().sum().backward();
  std::vector<at::Tensor> expected;
  for (std::size_t i = 0; i < kConvolutions; ++i) {
    for (const auto* p : model.layers[i]->parameters()) {
      expected.push_back(p->value.grad().clone());
      p->value.mutable_grad().reset();
    }
  }
  ours.square().sum().backward();
  auto gradient = expected.begin();
  for (std::size_t i = 0; i < kConvolutions; ++i) {
    for (const auto* p : model.layers[i]->parameters()) {
      const double scale = gradient->norm().item<double>();
      // The gradient of a bias before a batch norm is only rounding.
      EXPECT_LE((p->value.grad() - *gradient).norm().item<double>(), 1e-10 * scale + 1e-12) << p->name;
      ++gradient;
    }
  }
}

TEST_P(Vgg, DropoutGivesEverySampleItsOwnMaskWhateverTheChunking) {
  ModelOptions options = without_values(GetParam());
  options.dropout = 0.5;
  const Model model = make_model(options);
  nn::Layer& layer = *model.layers[kSecondHidden];
  fill(layer);
  const at::Tensor x = at::randn({4, 4096}, at::kDouble), plain = layer.forward(x, {});
  const auto run = [&](std::int64_t first, std::int64_t count) {
    return layer.forward(
        x.narrow(0, first, count),
        {.training = true, .seed = 3, .step = 9, .sample_ids = at::arange(40 + first, 40 + first + count)});
  };
  const at::Tensor whole = run(0, 4);
  EXPECT_TRUE(at::allclose(whole, at::cat({run(0, 1), run(1, 3)})));
  const at::Tensor alive = plain > 0, kept = (whole > 0).logical_and(alive);
  EXPECT_TRUE(at::allclose(whole, plain * 2 * kept));
  EXPECT_NEAR(kept.sum().item<double>() / alive.sum().item<double>(), 0.5, 0.05);
}

INSTANTIATE_TEST_SUITE_P(Both, Vgg, testing::Values("vgg16", "vgg16_bn"));

}  // namespace
}  // namespace sluice::models
