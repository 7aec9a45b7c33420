// GPT-2's own parts. Its numbers: the tests named models_equal_torch_gpt2*.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "models/support.h"
#include "models/text_layers.h"
#include "nn/cross_entropy.h"
#include "nn/weight_queue.h"

namespace sluice::models {
namespace {

std::map<std::string, nn::Parameter*> by_name(const Model& model) {
  std::map<std::string, nn::Parameter*> all;
  for (const auto& layer : model.layers) {
    for (auto* p : layer->parameters()) all[p->name] = p;
  }
  return all;
}

TEST(TextLayers, OnlyRowsWithATargetAreScored) {
  const at::Tensor x = at::arange(20, at::kDouble).view({2, 5, 2});
  nn::ForwardContext context;
  EXPECT_TRUE(rows_to_score(x, context).is_same(x));
  context.targets = at::full({2, 5}, nn::kNoTarget, at::kLong);
  EXPECT_EQ(rows_to_score(x, context).sizes(), (at::IntArrayRef{1, 2})) << "one row, because there must be some";
  context.targets[0][3] = 7, context.targets[1][0] = 0;
  EXPECT_TRUE(rows_to_score(x, context).equal(at::stack({x[0][3], x[1][0]})));
  context.targets.flatten().slice(0, 0, 9).fill_(1);
  EXPECT_TRUE(rows_to_score(x, context).is_same(x)) << "9 of 10 rows have a target";
}

TEST(Gpt2, HasTheNamesAndShapesOfHuggingFace) {
  EXPECT_EQ(describe(options_of("gpt2")), golden("gpt2_nano_parameters.txt"));
}

TEST(Gpt2, IsThePublicModelInSizeSmall) {
  ModelOptions options = options_of("gpt2", "small");
  options.draw_weights = false;
  const Model model = make_model(options);
  EXPECT_EQ(model.inputs.front().bound, 50257);
  EXPECT_EQ(model.inputs.front().sizes, (std::vector<std::int64_t>{1024}));
  EXPECT_EQ(model.classes, 50257);
  EXPECT_EQ(model.layers.size(), 26U);
  const auto parameters = by_name(model);
  EXPECT_EQ(parameters.at("transformer.wte.weight")->value.sizes(), (std::vector<std::int64_t>{50257, 768}));
  EXPECT_EQ(parameters.at("transformer.h.11.attn.c_attn.weight")->value.sizes(),
            (std::vector<std::int64_t>{768, 2304}));
  EXPECT_EQ(parameters.at("transformer.h.11.mlp.c_proj.weight")->value.sizes(), (std::vector<std::int64_t>{3072, 768}));
}

TEST(Gpt2, TakesVocabularyAndContextFromTheOptions) {
  ModelOptions options = options_of("gpt2");
  options.vocabulary = 11;
  options.context = 5;
  for (const at::ScalarType type : {at::kFloat, at::kDouble}) {
    options.dtype = type;
    Model model = make_model(options);
    EXPECT_EQ(model.inputs.front().sizes, (std::vector<std::int64_t>{5}));
    for (const std::int64_t tokens : {5, 2}) {
      const at::Tensor logits = forward(model, random_inputs(model, 3).narrow(1, 0, tokens), {});
      EXPECT_EQ(logits.sizes(), (std::vector<std::int64_t>{3, tokens, 11}));
      EXPECT_EQ(logits.scalar_type(), type);
    }
  }
}

TEST(Gpt2, TheHeadDeclaresThatItsMatrixIsTheTokenTable) {
  const Model model = make_model(options_of("gpt2"));
  for (const auto& [name, p] : by_name(model)) {
    EXPECT_EQ(p->tied_to, name == "lm_head.weight" ? "transformer.wte.weight" : "") << name;
  }
  const auto parameters = by_name(model);
  EXPECT_TRUE(at::equal(parameters.at("lm_head.weight")->value, parameters.at("transformer.wte.weight")->value));
}

TEST(Gpt2, SaysWhatItsParametersAre) {
  ModelOptions options;
  options.name = "gpt2";
  options.size = "nano";
  for (const auto& layer : make_model(options).layers) {
    for (const nn::Parameter* parameter : layer->parameters()) {
      const std::string& name = parameter->name;
      auto role = nn::ParameterRole::kWeight;
      if (name.ends_with(".bias")) role = nn::ParameterRole::kBias;
      if (name.find(".ln_") != std::string::npos) role = nn::ParameterRole::kNorm;
      if (name == "transformer.wpe.weight") role = nn::ParameterRole::kPosition;
      EXPECT_EQ(parameter->role, role) << name;
      EXPECT_FALSE(parameter->is_classifier) << name << ": the matrix of the head is the token table";
    }
  }
}

TEST(Gpt2, StartsFromTheDistributionsOfThePublicCode) {
  const Model model = make_model(options_of("gpt2", "tiny"));
  for (const auto& [name, p] : by_name(model)) {
    const double deviation = p->value.std(/*unbiased=*/false).item<double>();
    const double mean = p->value.mean().item<double>();
    if (p->value.dim() == 1) {
      EXPECT_EQ(deviation, 0) << name;
      EXPECT_EQ(mean, name.find(".ln_") != std::string::npos && name.ends_with("weight") ? 1 : 0) << name;
      continue;
    }
    const double expected = name.ends_with("c_proj.weight") ? 0.02 / std::sqrt(2.0 * 4) : 0.02;
    EXPECT_NEAR(deviation, expected, 0.03 * expected) << name;
    EXPECT_NEAR(mean, 0, 0.05 * expected) << name;
  }
}

TEST(Gpt2, ATokenChangesNothingInFrontOfIt) {
  Model model = make_model(options_of("gpt2"));
  const at::Tensor tokens = random_inputs(model, 2), changed = tokens.clone();
  constexpr std::int64_t kPosition = 9;
  changed.select(1, kPosition).add_(1).remainder_(model.classes);
  const at::Tensor difference = (forward(model, tokens, {}) - forward(model, changed, {})).abs().amax({0, 2});
  EXPECT_EQ(difference.narrow(0, 0, kPosition).max().item<double>(), 0);
  EXPECT_GT(difference.narrow(0, kPosition, difference.size(0) - kPosition).min().item<double>(), 0);
}

// Every weight of a matrix product or a table is deferred, with equal bits.
TEST(Gpt2, SplitBackwardGivesTheSameGradients) {
  const Model model = make_model(options_of("gpt2"));
  const auto parameters = by_name(model);
  const at::Tensor tokens = random_inputs(model, 3);
  const auto backward = [&](nn::WeightGradQueue* queue) {
    at::Tensor x = tokens;
    for (const auto& layer : model.layers) x = layer->forward(x, {.training = true, .weight_queue = queue});
    x.square().sum().backward();
  };
  backward(nullptr);
  std::map<std::string, at::Tensor> expected;
  for (const auto& [name, p] : parameters) {
    expected[name] = p->value.grad().clone();
    p->value.mutable_grad() = at::zeros_like(p->value);
  }
  nn::WeightGradQueue queue;
  backward(&queue);
  for (const auto& [name, p] : parameters) {
    const bool is_deferred = name.find(".ln_") == std::string::npos && name.find(".wpe.") == std::string::npos;
    EXPECT_EQ(p->value.grad().count_nonzero().item<std::int64_t>() == 0, is_deferred) << name;
  }
  queue.run();
  for (const auto& [name, p] : parameters) EXPECT_TRUE(at::equal(p->value.grad(), expected.at(name))) << name;
}

}  // namespace
}  // namespace sluice::models
