// What weights bring with them besides tensors, and where it is saved.
#include "train/setup/constants.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ATen/ATen.h>

#include "core/error.h"
#include "models/text_config.h"
#include "storage/checkpoint.h"
#include "support/files.h"

namespace sluice::train {
namespace {

using testing::AllOf;
using testing::HasSubstr;

models::ModelOptions vit_options() {
  models::ModelOptions options;
  options.name = "vit";
  return options;
}

TEST(Constants, OfACheckpointAreThoseThatItWasTrainedWith) {
  const models::ModelOptions vit = vit_options();
  const Constants earlier = saved_constants(nlohmann::json::object(), vit, "step-5");  // before they were saved
  EXPECT_EQ(earlier.model, (models::ModelConstants{.norm_epsilon = 1e-12, .last_norm_epsilon = 1e-12}));
  EXPECT_EQ(constants_of_model(vit).model, (models::ModelConstants{.norm_epsilon = 1e-6, .last_norm_epsilon = 1e-6}));
  const Constants tanh{.model = {.norm_epsilon = 1e-4, .last_norm_epsilon = 1e-3, .gelu = nn::GeluForm::kTanh},
                       .mean = {0.5},
                       .stddev = {0.1}};
  storage::CheckpointContents contents;
  put_constants(tanh, contents);
  const Constants found = saved_constants(contents.state, vit, "step-5");
  EXPECT_EQ(found.model, tanh.model);
  EXPECT_EQ(found.mean, tanh.mean);
  EXPECT_EQ(found.stddev, tanh.stddev);
  EXPECT_THROW(static_cast<void>(saved_constants({{"constants", 3}}, vit, "step-5")), CheckpointError);
}

TEST(Constants, OfWeightsThatSluiceSavedGoWithEachCopyOfTheFile) {
  const sluice::test::TempDir dir;
  const models::ModelOptions vit = vit_options();
  storage::CheckpointContents contents;
  put_constants({.model = {.norm_epsilon = 1e-5, .last_norm_epsilon = 1e-5}}, contents);
  storage::write_safetensors(dir / "a.safetensors", {{"vit.embeddings.cls_token", at::zeros({1, 1, 192})}},
                             contents.metadata);
  EXPECT_EQ(constants_of_weights(dir / "a.safetensors", {}, vit).model.norm_epsilon, 1e-5);
}

TEST(Constants, OfATextModelAreThoseOfModelConfig) {
  const sluice::test::TempDir dir;
  const auto config_with = [&](const char* name, double epsilon) {
    const nlohmann::json config{
        {"model_type", "bert"}, {"num_attention_heads", 2}, {"hidden_size", 4}, {"layer_norm_eps", epsilon}};
    sluice::test::spill(dir / name, config.dump());
    return (dir / name).string();
  };
  models::ModelOptions bert;
  bert.name = "bert";
  bert.text = models::read_text_config(config_with("config.json", 1e-5));
  storage::write_safetensors(dir / "model.safetensors", {{"bert.pooler.dense.bias", at::zeros({4})}}, {{"sluice", R"({
      "norm_epsilon": 1e-5, "last_norm_epsilon": 1e-5, "gelu": "exact", "mean": [], "stddev": []})"}});
  EXPECT_EQ(constants_of_weights(dir / "model.safetensors", {}, bert).model.norm_epsilon, 1e-5);
  EXPECT_NO_THROW(static_cast<void>(saved_constants(nlohmann::json::object(), bert, dir.path())));
  bert.text = models::read_text_config(config_with("other.json", 1e-12));
  const auto refused = [](const auto& call) {
    EXPECT_THAT(call, testing::ThrowsMessage<CheckpointError>(
                          AllOf(HasSubstr("config.json has epsilon of norms = 1e-05, but the model has 1e-12"),
                                HasSubstr("set model.config to the config.json of these weights"))));
  };
  refused([&] { static_cast<void>(constants_of_weights(dir / "model.safetensors", {}, bert)); });
  refused([&] { static_cast<void>(saved_constants(nlohmann::json::object(), bert, dir.path())); });
}

TEST(Constants, OfFilesThatAnotherLibraryWroteAreIgnoredWithAWarning) {
  const sluice::test::TempDir dir;
  const auto constants_of = [&](const char* file) {
    testing::internal::CaptureStderr();
    const Constants constants = constants_of_weights(dir / file, {}, vit_options());
    return std::pair(constants, testing::internal::GetCapturedStderr());
  };
  storage::write_safetensors(dir / "torchvision.safetensors", {{"class_token", at::zeros({1, 1, 192})}});
  storage::write_safetensors(dir / "transformers.safetensors", {{"vit.embeddings.cls_token", at::zeros({1, 1, 192})}});
  sluice::test::spill(dir / "preprocessor_config.json",
                      R"({"image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5]})");
  const auto [taken, nothing] = constants_of("transformers.safetensors");
  EXPECT_EQ(taken.mean, (std::vector<double>{0.5, 0.5, 0.5}));
  EXPECT_THAT(nothing, testing::Not(HasSubstr("is ignored")));
  const auto [own, warning] = constants_of("torchvision.safetensors");
  EXPECT_TRUE(own.mean.empty());
  EXPECT_THAT(warning, HasSubstr((dir / "preprocessor_config.json").string() + " is ignored"));
}

TEST(Constants, AnInterpolationOtherThanThatOfTheWeightsIsWarnedOf) {
  const sluice::test::TempDir dir;
  storage::write_safetensors(dir / "a.safetensors", {{"vit.embeddings.cls_token", at::zeros({1, 1, 192})}});
  sluice::test::spill(dir / "preprocessor_config.json", R"({"resample": 3})");  // Pillow's number of "bicubic"
  const auto warning_with = [&](const char* interpolation) {
    config::Config config;
    config.data.interpolation = interpolation;
    testing::internal::CaptureStderr();
    static_cast<void>(constants_of_weights(dir / "a.safetensors", config, vit_options()));
    return testing::internal::GetCapturedStderr();
  };
  EXPECT_THAT(warning_with("bilinear"),
              HasSubstr("expect images resized by \"bicubic\", but data.interpolation is \"bilinear\""));
  EXPECT_THAT(warning_with("bicubic"), testing::Not(HasSubstr("resized by")));
}

TEST(Constants, WeightsWithTokensOfTheirOwnAreRefusedOnBytes) {
  const sluice::test::TempDir dir;
  models::ModelOptions gpt2;
  gpt2.name = "gpt2";
  gpt2.size = "small";
  const storage::TensorMap tensors{{"transformer.ln_f.bias", at::zeros({768})}};
  storage::write_safetensors(dir / "public.safetensors", tensors);
  const auto check = [&](const char* file) {
    return [&, file] { check_tokens_of_weights(dir / file, {}, gpt2, {.name = "text"}); };
  };
  EXPECT_THAT(check("public.safetensors"),
              testing::ThrowsMessage<ConfigError>(AllOf(HasSubstr("use a vocabulary of 50257 tokens"),
                                                        HasSubstr("data.name = \"text\" provides bytes"))));
  storage::CheckpointContents contents;
  put_constants(constants_of_model(gpt2), contents);
  storage::write_safetensors(dir / "ours.safetensors", tensors, contents.metadata);
  EXPECT_NO_THROW(check("ours.safetensors")());
  gpt2.size = "tiny";  // of bytes
  EXPECT_NO_THROW(check("public.safetensors")());
}

}  // namespace
}  // namespace sluice::train
