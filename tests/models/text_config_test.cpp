// The numbers of models made from a config.json: text_models_test.py.
#include "models/text_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include <nlohmann/json.hpp>

#include "core/error.h"
#include "models/support.h"

namespace sluice::models {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;
using testing::ThrowsMessage;

TextConfig parsed(const json& fields) { return parse_text_config(fields, "folder/config.json"); }

// transformers leaves fields out that have its defaults.
TEST(TextConfig, HasTheDefaultsOfTransformers) {
  const TextConfig bert = parsed({{"model_type", "bert"}});
  EXPECT_EQ(bert.vocabulary, 30522);
  EXPECT_EQ(bert.head_width, 64);
  EXPECT_EQ(bert.epsilon, 1e-12);
  EXPECT_EQ(bert.dropouts.classify, 0.1);
  const TextConfig mistral = parsed({{"model_type", "mistral"}});
  EXPECT_EQ(mistral.kv_heads, 8);
  EXPECT_EQ(mistral.longest(), 4096) << "its window";
  EXPECT_EQ(parsed({{"model_type", "mistral"}, {"sliding_window", nullptr}}).longest(), 131072);
  EXPECT_EQ(parsed({{"model_type", "roberta"}, {"max_position_embeddings", 514}}).longest(), 512);
  EXPECT_EQ(parsed({{"model_type", "llama"}}).kv_heads, 32);
  EXPECT_TRUE(parsed({{"model_type", "qwen2"}}).has_qkv_bias);
  EXPECT_FALSE(parsed({{"model_type", "qwen2"}}).has_output_bias);
}

TEST(TextConfig, RefusesWhatComputesOtherwise) {
  const auto refused = [](json fields, const std::string& field, const std::string& what) {
    EXPECT_THAT([&] { static_cast<void>(parsed(fields)); },
                ThrowsMessage<ConfigError>(AllOf(HasSubstr("folder/config.json"), HasSubstr(field), HasSubstr(what))));
  };
  refused({{"model_type", "t5"}}, "model_type = \"t5\"", "bert, roberta, distilbert, llama, mistral, qwen2, gpt2");
  refused(json::array(), "config.json", "table");
  refused({{"model_type", "llama"}, {"num_local_experts", 8}}, "num_local_experts = 8", "dense");
  refused({{"model_type", "qwen2"}, {"use_sliding_window", true}}, "use_sliding_window = true", "not supported");
  refused({{"model_type", "qwen2"}, {"layer_types", {"sliding_attention"}}}, "layer_types", "full_attention");
  refused({{"model_type", "llama"}, {"hidden_act", "gelu"}}, "hidden_act = \"gelu\"", "SiLU");
  refused({{"model_type", "bert"}, {"hidden_act", "relu"}}, "hidden_act = \"relu\"", "GELU");
  refused({{"model_type", "llama"}, {"rope_scaling", {{"rope_type", "yarn"}}}}, "rope_scaling: rope_type = \"yarn\"",
          "llama3");
  refused({{"model_type", "bert"}, {"position_embedding_type", "relative_key"}}, "position_embedding_type", "table");
  refused({{"model_type", "bert"}, {"hidden_size", 30}}, "num_attention_heads", "width of 30");
  refused({{"model_type", "gpt2"}, {"n_embd", "wide"}}, "n_embd = \"wide\"", "not an integer");
  refused({{"model_type", "gpt2"}, {"n_layer", 0}}, "n_layer = 0", "not a size");
  refused({{"model_type", "gpt2"}, {"attn_pdrop", 1.5}}, "attn_pdrop = 1.5", "below 1");
}

TEST(TextConfig, AFileIsKeptByteForByte) {
  const std::filesystem::path path = std::filesystem::path(testing::TempDir()) / "text_config_test.json";
  const std::string text = "{\"model_type\" : \"bert\",\n  \"of_others\": 1.50, \"hidden_size\": 48}\n\n";
  std::ofstream(path) << text;
  const TextConfigPtr config = read_text_config(path.string());
  EXPECT_EQ(config->width, 48);
  EXPECT_EQ(config_json(*config, 0), text);
  EXPECT_EQ(config_json(*config, 2), text) << "the default of transformers";
  const json labelled = json::parse(config_json(*config, 3));
  EXPECT_EQ(labelled["id2label"].size(), 3U);
  EXPECT_EQ(labelled["of_others"], 1.5);
  std::ofstream(path) << "{";
  EXPECT_THAT([&] { static_cast<void>(read_text_config(path.string())); },
              ThrowsMessage<ConfigError>(HasSubstr("not valid JSON")));
  std::filesystem::remove(path);
  EXPECT_THAT([&] { static_cast<void>(read_text_config(path.string())); },
              ThrowsMessage<ConfigError>(HasSubstr("cannot read model.config")));
  EXPECT_THAT([&] { static_cast<void>(read_text_config(path.parent_path().string())); },
              ThrowsMessage<ConfigError>(HasSubstr("is a folder; name the config.json in it")));
}

// What is written for a size of our own says the same when it is read.
TEST(TextConfig, OfOurSizesIsWrittenInFull) {
  for (const auto& [name, size] : {std::pair{"bert", "base"}, {"llama", "1b"}, {"llama", "nano"}, {"gpt2", "small"}}) {
    ModelOptions options = options_of(name, size);
    options.dropout = 0;
    const TextConfig ours = text_config(options);
    options.text = std::make_shared<TextConfig>(parsed(json::parse(config_json(ours, 0))));
    const TextConfig read = text_config(options);
    EXPECT_EQ(describe([&] {
                options.draw_weights = false;
                return options;
              }()),
              [&] {
                ModelOptions own = options_of(name, size);
                own.draw_weights = false;
                return describe(own);
              }());
    EXPECT_EQ(arithmetic_difference(read, ours), "");
    EXPECT_EQ(read.longest(), ours.longest());
  }
}

TEST(TextConfig, WhatTensorsDoNotShowIsCompared) {
  const json rope{{"rope_type", "llama3"}, {"factor", 8.0}, {"original_max_position_embeddings", 8192}};
  const json llama{{"model_type", "llama"}, {"rope_parameters", rope}};
  const auto difference = [&](const json& path, const json& value) {
    json other = llama;
    other[json::json_pointer(path.get<std::string>())] = value;
    return arithmetic_difference(parsed(other), parsed(llama));
  };
  EXPECT_EQ(difference("/attention_dropout", 0.5), "");
  EXPECT_EQ(difference("/pad_token_id", 3), "");
  EXPECT_EQ(difference("/num_attention_heads", 16), "number of attention heads = 16, but the model has 32");
  EXPECT_EQ(difference("/num_key_value_heads", 8), "number of key-value heads = 8, but the model has 32");
  EXPECT_EQ(difference("/rms_norm_eps", 1e-5), "epsilon of norms = 1e-05, but the model has 1e-06");
  EXPECT_EQ(difference("/rope_theta", 5e5), "rope_theta = 500000, but the model has 10000");
  EXPECT_EQ(difference("/rope_parameters/rope_type", "linear"), "rope_type = linear, but the model has llama3");
  for (const char* field : {"factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"})
    EXPECT_THAT(difference(std::string("/rope_parameters/") + field, 32), HasSubstr(field)) << field;
  const json bert{{"model_type", "bert"}};
  EXPECT_THAT(arithmetic_difference(parsed(bert), parsed(llama)), HasSubstr("model_type = bert"));
  EXPECT_EQ(arithmetic_difference(parsed({{"model_type", "bert"}, {"hidden_act", "gelu_new"}}), parsed(bert)),
            "form of GELU = tanh, but the model has exact");
  EXPECT_EQ(arithmetic_difference(parsed({{"model_type", "roberta"}, {"pad_token_id", 4}}),
                                  parsed({{"model_type", "roberta"}})),
            "first position = 5, but the model has 2");
}

TEST(TextModel, OptionsFitTheFile) {
  ModelOptions options = options_of("bert");
  options.text = std::make_shared<TextConfig>(parsed({{"model_type", "bert"}, {"max_position_embeddings", 64}}));
  options.draw_weights = false;
  options.context = 16;
  EXPECT_EQ(make_model(options).inputs.front().sizes, std::vector<std::int64_t>{16});
  EXPECT_EQ(text_config(options).dropouts.attention, 0) << "model.dropout";
  options.dropout = -1;
  EXPECT_EQ(text_config(options).dropouts.attention, 0.1) << "the file's";
  const auto refused = [](const ModelOptions& wrong, const std::string& what) {
    EXPECT_THAT([&] { static_cast<void>(make_model(wrong)); }, ThrowsMessage<ConfigError>(HasSubstr(what)));
  };
  ModelOptions wrong = options;
  wrong.context = 65;
  refused(wrong, "model.context=65, but folder/config.json has 64 positions");
  wrong = options;
  wrong.vocabulary = 100;
  refused(wrong, "has 30522 tokens");
  wrong = options;
  wrong.name = "llama";
  refused(wrong, "set model.name = \"bert\"");
  wrong = options;
  wrong.task = "lm";
  refused(wrong, "use one of mlm, classify, tokens, qa");
  wrong = options_of("vit");
  wrong.config = "config.json";
  refused(wrong, "model.config");
}

TEST(TextModel, TheClassifierOfADecoderReadsTheLastTokenThatIsNotPadding) {
  for (const char* name : {"llama", "gpt2"}) {
    ModelOptions options = options_of(name);
    options.task = "classify";
    const Model model = make_model(options);
    const at::Tensor tokens = random_inputs(model, 3).narrow(1, 0, 8);
    const at::Tensor mask = at::ones_like(tokens);
    mask[1].narrow(0, 5, 3).zero_();
    const auto logits = [&](const at::Tensor& row, const at::Tensor& of_row) {
      nn::Tensors border{row, of_row};
      for (const auto& layer : model.layers) border = layer->forward_all(border, {});
      return border.front();
    };
    const at::Tensor all = logits(tokens, mask), alone = logits(tokens[1].narrow(0, 0, 5).unsqueeze(0), {});
    EXPECT_EQ(all.sizes(), (std::vector<std::int64_t>{3, options.classes}));
    EXPECT_TRUE(at::allclose(all[1], alone[0], 1e-4, 1e-6)) << name;
  }
}

}  // namespace
}  // namespace sluice::models
