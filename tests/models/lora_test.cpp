#include "models/lora.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>

#include <nlohmann/json.hpp>

#include "core/error.h"
#include "models/peft_files.h"
#include "models/support.h"

namespace sluice::models {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

ModelOptions with_lora(const std::string& name, const std::string& task = "", std::vector<std::string> targets = {}) {
  ModelOptions options = options_of(name);
  options.task = task;
  options.dtype = at::kDouble;
  options.lora_rank = 4;
  options.lora_alpha = 6;
  options.lora_targets = std::move(targets);
  return options;
}

std::string refusal(const ModelOptions& options) {
  try {
    (void)make_model(options);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return {};
}

// Adapters with values that have an effect.
NamedTensors random_tensors(const Model& model) {
  const at::NoGradGuard no_grad;
  NamedTensors tensors;
  for (const auto& layer : model.layers) {
    for (nn::Parameter* p : layer->parameters()) {
      if (is_adapter(p->name)) p->value.normal_(0, 0.3);
      if (p->tied_to.empty()) tensors[p->name] = p->value.detach();
    }
  }
  return tensors;
}

std::vector<std::string> trained(const Model& model, const std::string& within) {
  std::vector<std::string> names;
  for (const auto& layer : model.layers) {
    for (const nn::Parameter* p : layer->parameters())
      if (p->value.requires_grad() && p->name.find(within) != std::string::npos) names.push_back(p->name);
  }
  return names;
}

TEST(LoraOfModels, TrainsTheAdaptersAndTheHeadAsPeftDoes) {
  const std::string block = "bert.encoder.layer.1.attention.self.";
  EXPECT_THAT(trained(make_model(with_lora("bert", "mlm")), ".1."),
              ElementsAre(block + "query.lora_A.weight", block + "query.lora_B.weight", block + "value.lora_A.weight",
                          block + "value.lora_B.weight"));
  EXPECT_THAT(trained(make_model(with_lora("bert", "mlm")), "cls."), ElementsAre());
  EXPECT_THAT(trained(make_model(with_lora("bert", "classify")), "classifier"),
              ElementsAre("classifier.weight", "classifier.bias"));
  EXPECT_THAT(trained(make_model(with_lora("bert", "classify")), "pooler"), ElementsAre());
  EXPECT_THAT(trained(make_model(with_lora("bert", "qa")), "qa_outputs"),
              ElementsAre("qa_outputs.weight", "qa_outputs.bias"));
  EXPECT_THAT(trained(make_model(with_lora("gpt2", "lm")), "h.0."),
              ElementsAre("transformer.h.0.attn.c_attn.lora_A.weight", "transformer.h.0.attn.c_attn.lora_B.weight"));
  EXPECT_EQ(trained(make_model(with_lora("llama", "lm")), "").size(),
            trained(make_model(with_lora("llama", "lm")), "_proj.lora_").size());
  EXPECT_THAT(trained(make_model(with_lora("llama", "classify")), "score"), ElementsAre("score.weight"));
  EXPECT_THAT(trained(make_model(with_lora("vit", "", {"query"})), "layer.0"),
              ElementsAre("vit.encoder.layer.0.attention.attention.query.lora_A.weight",
                          "vit.encoder.layer.0.attention.attention.query.lora_B.weight"));
  EXPECT_THAT(trained(make_model(with_lora("vit", "", {"query"})), "classifier"),
              ElementsAre("classifier.weight", "classifier.bias"));
}

TEST(LoraOfModels, TakesTargetsByTheEndOfTheirNames) {
  const Model model = make_model(with_lora("bert", "classify", {"attention.output.dense", "key"}));
  EXPECT_THAT(trained(model, "lora_A"), ElementsAre("bert.encoder.layer.0.attention.self.key.lora_A.weight",
                                                    "bert.encoder.layer.0.attention.output.dense.lora_A.weight",
                                                    "bert.encoder.layer.1.attention.self.key.lora_A.weight",
                                                    "bert.encoder.layer.1.attention.output.dense.lora_A.weight"));
  const auto all = trained(make_model(with_lora("bert", "classify", {kAllLinear})), "lora_A");
  EXPECT_EQ(all.size(), 2U * 6 + 1) << "six layers of a block, and the pooler";
}

TEST(LoraOfModels, RefusesKeysThatDoNotFit) {
  EXPECT_THAT(refusal(with_lora("bert", "mlm", {"query", "values"})),
              AllOf(HasSubstr("model.lora_targets has \"values\", but bert has no such linear layer"),
                    HasSubstr("query, key, value, dense"), HasSubstr("did you mean 'value'?")));
  ModelOptions large = with_lora("bert", "mlm");
  large.lora_rank = 33;
  EXPECT_THAT(refusal(large), HasSubstr("model.lora_rank = 33 is larger than the layer "
                                        "bert.encoder.layer.0.attention.self.query, which is 32 x 32; set it to 32"));
  EXPECT_THAT(refusal(with_lora("resnet8")), HasSubstr("resnet8 has no linear layer besides its head"));
  EXPECT_THAT(refusal(with_lora("vit")), HasSubstr("vit has no usual layers for adapters; set model.lora_targets"));
}

class LoraOfEveryModel : public testing::TestWithParam<std::pair<std::string, std::string>> {
 protected:
  [[nodiscard]] static ModelOptions options() { return with_lora(GetParam().first, GetParam().second, {kAllLinear}); }
};

TEST_P(LoraOfEveryModel, MergedGivesTheSameLogits) {
  at::manual_seed(1);
  Model model = make_model(options());
  const NamedTensors tensors = random_tensors(model);
  ModelOptions plain = options();
  plain.lora_rank = 0;
  Model merged = make_model(plain);
  const NamedTensors weights = merge_adapters(options(), tensors);
  std::size_t count = 0;
  {
    const at::NoGradGuard no_grad;
    for (const auto& layer : merged.layers) {
      for (nn::Parameter* p : layer->parameters()) {
        p->value.copy_(weights.at(p->tied_to.empty() ? p->name : p->tied_to));
        count += p->tied_to.empty() ? 1 : 0;
      }
    }
  }
  EXPECT_EQ(weights.size(), count);
  const at::Tensor x = random_inputs(model, 3);
  const at::Tensor ours = forward(model, x, {}), expected = forward(merged, x, {});
  EXPECT_LE((ours - expected).norm().item<double>(), 1e-12 * expected.norm().item<double>());
  EXPECT_GE((forward(merged, x, {}) -
             [&] {
               Model base = make_model(plain);
               return forward(base, x, {});
             }())
                .norm()
                .item<double>(),
            1e-3)
      << "the adapters have an effect";
}

TEST_P(LoraOfEveryModel, FilesOfPeftComeBack) {
  const Model model = make_model(options());
  const NamedTensors tensors = random_tensors(model);
  const NamedTensors file = peft_tensors(options(), tensors);
  const json config = json::parse(peft_config(options(), "base"));
  const NamedTensors back = from_peft(options(), file, config, "folder");
  EXPECT_EQ(back.size(), file.size());
  EXPECT_EQ(back.size(), trained(model, "").size());
  for (const auto& [name, tensor] : back) EXPECT_TRUE(tensor.is_same(tensors.at(name))) << name;
  for (const auto& [name, tensor] : file) EXPECT_TRUE(name.starts_with("base_model.model.")) << name;
}

INSTANTIATE_TEST_SUITE_P(Models, LoraOfEveryModel,
                         testing::Values(std::pair{"bert", "mlm"}, std::pair{"bert", "classify"},
                                         std::pair{"llama", "lm"}, std::pair{"gpt2", "lm"},
                                         std::pair{"gpt2", "classify"}, std::pair{"vit", ""}, std::pair{"mlp", ""}));

TEST(PeftFiles, DescribeTheAdapters) {
  const json config = json::parse(peft_config(with_lora("gpt2", "classify"), ""));
  EXPECT_EQ(config.at("peft_type"), "LORA");
  EXPECT_EQ(config.at("task_type"), "SEQ_CLS");
  EXPECT_EQ(config.at("r"), 4);
  EXPECT_EQ(config.at("lora_alpha"), 6);
  EXPECT_EQ(config.at("fan_in_fan_out"), true);
  EXPECT_EQ(config.at("target_modules"), json::array({"c_attn"}));
  EXPECT_EQ(config.at("modules_to_save"), json::array({"score"}));
  EXPECT_TRUE(config.at("base_model_name_or_path").is_null());
  const json of_mlm = json::parse(peft_config(with_lora("bert", "mlm"), "folder"));
  EXPECT_TRUE(of_mlm.at("task_type").is_null());
  EXPECT_TRUE(of_mlm.at("modules_to_save").is_null());
  EXPECT_EQ(of_mlm.at("base_model_name_or_path"), "folder");
}

TEST(PeftFiles, OfOtherAdaptersAreRefused) {
  const ModelOptions options = with_lora("bert", "mlm");
  const NamedTensors file = peft_tensors(options, random_tensors(make_model(options)));
  const json config = json::parse(peft_config(options, ""));
  const auto refusal_with = [&](const std::string& field, const json& value) -> std::string {
    json changed = config;
    changed[field] = value;
    try {
      (void)from_peft(options, file, changed, "folder");
    } catch (const CheckpointError& error) {
      return error.what();
    }
    return {};
  };
  EXPECT_EQ(refusal_with("use_dora", false), "");
  EXPECT_EQ(refusal_with("rank_pattern", json::object()), "");
  EXPECT_THAT(refusal_with("use_dora", true), HasSubstr("folder: adapter_config.json has use_dora = true"));
  EXPECT_THAT(refusal_with("bias", "all"), HasSubstr("bias = \"all\""));
  EXPECT_THAT(refusal_with("peft_type", "IA3"), HasSubstr("peft_type = \"IA3\""));
  EXPECT_THAT(refusal_with("rank_pattern", {{"query", 2}}), HasSubstr("rank_pattern"));
  EXPECT_THAT(refusal_with("r", 8), HasSubstr("r = 8, but model.lora_rank = 4; set model.lora_rank = 8"));
  EXPECT_THAT(refusal_with("lora_alpha", 16), HasSubstr("set model.lora_alpha = 16"));
  EXPECT_THROW((void)from_peft(options, file, json(), "folder"), CheckpointError);
  EXPECT_THROW((void)from_peft(options, random_tensors(make_model(options)), config, "folder"), CheckpointError);
}

}  // namespace
}  // namespace sluice::models
