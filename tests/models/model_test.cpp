#include "models/model.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <utility>

#include "core/error.h"
#include "models/family.h"
#include "models/support.h"

namespace sluice::models {
namespace {

using testing::HasSubstr;

TEST(Models, HaveTheNamesAndShapesOfTorchvisionAndHuggingFace) {
  EXPECT_EQ(describe(options_of("resnet8")), golden("resnet8_parameters.txt"));
  EXPECT_EQ(describe(options_of("vit", "nano")), golden("vit_nano_parameters.txt"));
  ModelOptions options = options_of("resnet18");
  options.draw_weights = false;
  options.stem = "imagenet";
  EXPECT_EQ(describe(options), golden("resnet18_parameters.txt"));
}

TEST(Models, AreListedWithTheirSizes) {
  std::map<std::string, std::int64_t> parameters;
  for (const ModelInfo& info : list_models()) {
    parameters[info.size.empty() ? info.name : info.name + " " + info.size] = info.parameters;
  }
  EXPECT_EQ(parameters.size(), 35U);
  EXPECT_EQ(parameters.at("resnet8"), 78042);
  EXPECT_EQ(parameters.at("resnet18"), 11173962);       // torchvision's 11181642, with a stem of 3x3 instead of 7x7
  EXPECT_EQ(parameters.at("resnet50"), 23520842);       // torchvision's 23528522, likewise
  EXPECT_EQ(parameters.at("convnext tiny"), 27827818);  // torchvision's, with 10 classes
  EXPECT_EQ(parameters.at("vit tiny"), 5362762);        // 12 * 444864 + (1 + 65) * 192 + 49 * 192 + 2 * 192 + 193 * 10
  EXPECT_EQ(parameters.at("gpt2 small"), 124439808);    // Hugging Face's, whose head has no matrix of its own
  EXPECT_EQ(parameters.at("bert base"), 109514298);     // Hugging Face's BertForMaskedLM
  EXPECT_EQ(parameters.at("llama 1b"), 1235814400);     // Hugging Face's Llama 3.2 1B
  EXPECT_EQ(parameters.at("mlp"), 3073 * 128 + 129 * 128 + 129 * 10);
}

class ImageModel : public testing::TestWithParam<std::string> {};

TEST_P(ImageModel, GivesLogitsOfTheAskedShapeAndType) {
  for (const at::ScalarType type : {at::kFloat, at::kDouble}) {
    ModelOptions options = options_of(GetParam());
    options.classes = 7;
    options.channels = 1;
    options.image_size = 28;
    options.dtype = type;
    Model model = make_model(options);
    EXPECT_EQ(model.inputs.front().sizes, (std::vector<std::int64_t>{1, 28, 28}));
    for (const bool training : {true, false}) {
      const at::Tensor logits =
          forward(model, at::randn({3, 1, 28, 28}, type), {.training = training, .sample_ids = at::arange(3)});
      EXPECT_EQ(logits.sizes(), (std::vector<std::int64_t>{3, 7}));
      EXPECT_EQ(logits.scalar_type(), type);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, ImageModel, testing::Values("resnet8", "vit", "mlp", "toy_cnn"));

class EveryModel : public testing::TestWithParam<std::string> {};

TEST_P(EveryModel, HasTheSameNamesAndShapesWithoutDrawingWeights) {
  ModelOptions options = options_of(GetParam());
  const std::string drawn = describe(options);
  const int layers = static_cast<int>(make_model(options).layers.size());
  options.draw_weights = false;
  EXPECT_EQ(describe(options), drawn);
  EXPECT_EQ(count_layers(options), layers);
  for (const auto& layer : make_model(options).layers) {
    for (const auto* p : layer->parameters()) EXPECT_TRUE(p->value.is_meta()) << p->name;
  }
}

TEST_P(EveryModel, StartsFromTheSeedAloneWhateverTheNumberType) {
  ModelOptions options = options_of(GetParam());
  const Model first = make_model(options), again = make_model(options);
  options.dtype = at::kDouble;
  const Model exact = make_model(options);
  options.seed = 1;
  const Model other = make_model(options);
  bool differs = false;
  for (std::size_t i = 0; i < first.layers.size(); ++i) {
    const auto p = first.layers[i]->parameters(), q = again.layers[i]->parameters(), e = exact.layers[i]->parameters(),
               o = other.layers[i]->parameters();
    for (std::size_t j = 0; j < p.size(); ++j) {
      EXPECT_TRUE(at::equal(p[j]->value, q[j]->value)) << p[j]->name;
      EXPECT_TRUE(at::equal(p[j]->value, e[j]->value.to(at::kFloat))) << p[j]->name;
      differs = differs || !at::equal(e[j]->value, o[j]->value);
    }
  }
  EXPECT_TRUE(differs);
}

// Stages share their inputs by pointer, so a layer must not write into its input.
void expect_inputs_left_alone(const Model& model) {
  at::Tensor x = random_inputs(model, 2);
  for (const auto& layer : model.layers) {
    const at::Tensor before = x.detach().clone();
    const at::Tensor input = x.detach().requires_grad_(x.is_floating_point());
    const at::Tensor y = layer->forward(input, {.training = true, .sample_ids = at::arange(2)});
    y.square().sum().backward();
    EXPECT_TRUE(at::equal(input.detach(), before)) << layer->name();
    EXPECT_FALSE(y.is_alias_of(input)) << layer->name();
    x = y;
  }
}

TEST_P(EveryModel, LeavesTheInputsOfItsLayersAlone) { expect_inputs_left_alone(make_model(options_of(GetParam()))); }

TEST_P(EveryModel, KeepsMicroBatchesInFlightApart) {
  Model model = make_model(options_of(GetParam()));
  const nn::ForwardContext context{.training = true, .sample_ids = at::arange(2)};
  const at::Tensor a = random_inputs(model, 2), b = random_inputs(model, 2);
  const auto first_gradient = [&] { return model.layers[0]->parameters()[0]->value.grad().clone(); };
  const auto clear = [&] {
    for (const auto& layer : model.layers) {
      for (const auto* p : layer->parameters()) p->value.mutable_grad().reset();
    }
  };
  forward(model, a, context).square().sum().backward();
  forward(model, b, context).square().sum().backward();
  const at::Tensor expected = first_gradient();
  clear();
  const at::Tensor first = forward(model, a, context), second = forward(model, b, context);
  first.square().sum().backward();
  second.square().sum().backward();
  EXPECT_TRUE(at::equal(first_gradient(), expected));
}

INSTANTIATE_TEST_SUITE_P(All, EveryModel, testing::Values("resnet8", "vit", "gpt2", "mlp", "toy_cnn"));

// Not part of EveryModel, because drawing their weights takes up to two seconds.
TEST(Bottleneck, LeavesTheInputsOfItsLayersAlone) { expect_inputs_left_alone(make_model(options_of("resnet50"))); }
TEST(ConvNext, LeavesTheInputsOfItsLayersAlone) {
  expect_inputs_left_alone(make_model(options_of("convnext", "tiny")));
}

TEST(Resnet18, TheStemForLargeImagesQuartersThem) {
  ModelOptions options = options_of("resnet18");
  options.stem = "imagenet";
  const Model model = make_model(options);
  EXPECT_EQ(model.layers.size(), 10U);
  const at::Tensor x = at::randn({2, 3, 32, 32});
  EXPECT_EQ(model.layers[0]->forward(x, {}).sizes(), (std::vector<std::int64_t>{2, 64, 8, 8}));
  expect_inputs_left_alone(model);
}

class Transformer : public testing::TestWithParam<std::string> {};

TEST_P(Transformer, DropoutGivesEverySampleItsOwnMaskWhateverTheChunking) {
  ModelOptions options = options_of(GetParam());
  options.dropout = 0.2;
  options.dtype = at::kDouble;
  Model model = make_model(options);
  const at::Tensor x = random_inputs(model, 4, at::kDouble);
  const auto run = [&](std::int64_t first, std::int64_t count) {
    return forward(model, x.narrow(0, first, count),
                   {.training = true, .seed = 3, .step = 9, .sample_ids = at::arange(40 + first, 40 + first + count)});
  };
  const at::Tensor whole = run(0, 4), parts = at::cat({run(0, 1), run(1, 3)});
  EXPECT_LE((whole - parts).abs().max().item<double>(), 1e-12);
  Model plain = make_model(options);
  EXPECT_GE((forward(plain, x, {}) - whole).abs().max().item<double>(), 1e-4);
}

TEST_P(Transformer, IsCutBetweenTheHalvesOfABlock) {
  ModelOptions options = options_of(GetParam());
  options.dropout = 0.1;
  const Model model = make_model(options);
  ASSERT_EQ(model.layers.size(), GetParam() == "vit" ? 10U : 6U);  // 2 a block, and the two ends
  const nn::ForwardContext context{.training = true, .sample_ids = at::arange(3)};
  const at::Tensor x = random_inputs(model, 3);
  const auto run = [&](std::size_t first, std::size_t end, at::Tensor y) {
    for (std::size_t i = first; i < end; ++i) y = model.layers[i]->forward(y, context);
    return y;
  };
  const auto take_gradients = [&] {
    std::map<std::string, at::Tensor> gradients;
    for (const auto& layer : model.layers) {
      for (const auto* p : layer->parameters()) gradients[p->name] = std::exchange(p->value.mutable_grad(), {});
    }
    return gradients;
  };
  run(0, model.layers.size(), x).square().sum().backward();
  const auto expected = take_gradients();
  const at::Tensor sent = run(0, 2, x), received = sent.detach().requires_grad_();
  run(2, model.layers.size(), received).square().sum().backward();
  sent.backward(received.grad());
  const auto gradients = take_gradients();
  for (const auto& [name, gradient] : expected) EXPECT_TRUE(at::equal(gradients.at(name), gradient)) << name;
}

INSTANTIATE_TEST_SUITE_P(Both, Transformer, testing::Values("vit", "gpt2"));

std::string refusal(const ModelOptions& options) {
  try {
    (void)make_model(options);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(Models, OfAProgramsOwnHaveNamesOfTheirOwn) {
  const auto make = [](const ModelOptions&) { return Layers{}; };
  const std::size_t known = families().size();
  EXPECT_THAT([&] { add_family({.name = "vit", .make = make}); },
              testing::ThrowsMessage<ConfigError>(HasSubstr("a model \"vit\" already exists")));
  EXPECT_THROW(add_family({.name = "", .make = make}), ConfigError);
  EXPECT_THROW(add_family({.name = "own"}), BugError);
  EXPECT_EQ(families().size(), known);
}

TEST(Models, RefuseWhatCannotBeBuiltAndSayWhatToDo) {
  ModelOptions options = options_of("resnet9");
  EXPECT_THAT(refusal(options), HasSubstr("model.name = \"resnet9\""));
  EXPECT_THAT(refusal(options), HasSubstr("did you mean 'resnet8'"));
  options = options_of("vit", "huge");
  EXPECT_THAT(refusal(options),
              HasSubstr("model.size=\"huge\" is not a size of vit; use one of nano, tiny, small, base, large"));
  options = options_of("vit");
  options.patch_size = 5;
  EXPECT_THAT(refusal(options), HasSubstr("model.patch_size=5 does not divide model.image_size=32"));
  options.patch_size = 0;
  EXPECT_THAT(refusal(options), HasSubstr("model.patch_size=0"));
  options = options_of("resnet8");
  options.dropout = 0.1;
  EXPECT_THAT(refusal(options), HasSubstr("model.dropout=0.1 is not supported by resnet8"));
  options.dropout = 1;
  EXPECT_THAT(refusal(options), HasSubstr("model.dropout=1"));
  options.dropout = 0;
  options.stochastic_depth = 0.1;
  EXPECT_THAT(refusal(options), HasSubstr("model.stochastic_depth=0.1 is not supported by resnet8"));
  options = options_of("convnext", "tiny");
  options.stochastic_depth = 1;
  EXPECT_THAT(refusal(options), HasSubstr("model.stochastic_depth=1 must be at least 0 and below 1"));
  options.stochastic_depth = 0;
  options.image_size = 31;
  EXPECT_THAT(refusal(options), HasSubstr("model.image_size=31 is too small for convnext"));
  options = options_of("resnet18");
  options.stem = "mnist";
  EXPECT_THAT(refusal(options),
              HasSubstr("model.stem=\"mnist\" is not a stem of resnet18; use one of cifar, imagenet"));
  options = options_of("resnet8");
  options.stem = "imagenet";
  EXPECT_THAT(refusal(options), HasSubstr("model.stem=\"imagenet\" is not supported by resnet8"));
  options = options_of("vgg16");
  options.image_size = 31;
  EXPECT_THAT(refusal(options), HasSubstr("model.image_size=31 is too small for vgg16"));
  EXPECT_THAT(refusal(options_of("gpt2", "xl")),
              HasSubstr("model.size=\"xl\" is not a size of gpt2; use one of nano, tiny, small"));
  options = options_of("gpt2");
  options.context = -1;
  EXPECT_THAT(refusal(options), HasSubstr("model.context=-1"));
  options = options_of("vit");
  options.vocabulary = 50257;
  EXPECT_THAT(refusal(options), HasSubstr("model.vocabulary=50257 is not supported by vit"));
  options = options_of("mlp");
  options.classes = 0;
  EXPECT_THAT(refusal(options), HasSubstr("model.classes=0"));
}

}  // namespace
}  // namespace sluice::models
