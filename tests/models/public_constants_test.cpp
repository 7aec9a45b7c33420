#include "models/public_constants.h"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "core/error.h"

namespace sluice::models {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::ThrowsMessage;

ModelOptions model_named(const std::string& name, const std::string& size = "tiny") {
  ModelOptions options;
  options.name = name;
  options.size = size;
  return options;
}

ModelConstants constants_read(NamesOf names, const ModelOptions& model, const json& config) {
  return public_constants(names, model, config, "config.json");
}

TEST(PublicConstants, OfFilesWithoutConfigTheNamesTell) {
  const ModelConstants fresh{.norm_epsilon = 1e-6, .last_norm_epsilon = 1e-6};
  for (const char* name : {"vit", "convnext"}) {
    EXPECT_EQ(own_constants(name), fresh) << name;
    EXPECT_EQ(constants_by_names(NamesOf::kTimm, model_named(name)), fresh) << name;
  }
  EXPECT_EQ(constants_by_names(NamesOf::kTorchvision, model_named("vit")), fresh);
  EXPECT_EQ(constants_by_names(NamesOf::kOurs, model_named("convnext")), fresh);  // torchvision's names
  for (const NamesOf names : {NamesOf::kOurs, NamesOf::kHuggingFace}) {
    EXPECT_EQ(constants_by_names(names, model_named("vit")),
              (ModelConstants{.norm_epsilon = 1e-12, .last_norm_epsilon = 1e-12}));
    EXPECT_EQ(constants_by_names(names, model_named("gpt2")), own_constants("gpt2"));
  }
  EXPECT_EQ(constants_by_names(NamesOf::kHuggingFace, model_named("convnext")),
            (ModelConstants{.norm_epsilon = 1e-6, .last_norm_epsilon = 1e-12}));
  EXPECT_EQ(constants_by_names(NamesOf::kHuggingFace, model_named("resnet50")), ModelConstants());
}

TEST(PublicConstants, ATextModelHasThoseOfItsConfig) {
  ModelOptions model = model_named("bert");
  TextConfig config = text_config(model);
  config.epsilon = 1e-3;
  config.gelu = nn::GeluForm::kTanh;
  model.text = std::make_shared<TextConfig>(config);
  const ModelConstants said{.norm_epsilon = 1e-3, .last_norm_epsilon = 1e-3, .gelu = nn::GeluForm::kTanh};
  EXPECT_EQ(constants_by_names(NamesOf::kOurs, model), said);
  EXPECT_EQ(constants_read(NamesOf::kOurs, model, nullptr), said);
}

TEST(PublicConstants, ConfigOfTransformersCountsForItsOwnNames) {
  const json config{{"model_type", "vit"}, {"layer_norm_eps", 1e-4}, {"hidden_act", "gelu_pytorch_tanh"}};
  const ModelConstants said{.norm_epsilon = 1e-4, .last_norm_epsilon = 1e-4, .gelu = nn::GeluForm::kTanh};
  EXPECT_EQ(constants_read(NamesOf::kOurs, model_named("vit"), config), said);
  EXPECT_EQ(constants_read(NamesOf::kHuggingFace, model_named("vit"), config), said);
  EXPECT_EQ(constants_read(NamesOf::kTorchvision, model_named("vit"), config), own_constants("vit"));
  EXPECT_EQ(constants_read(NamesOf::kTimm, model_named("vit"), config), own_constants("vit"));
  EXPECT_EQ(constants_read(NamesOf::kHuggingFace, model_named("convnext"), config),
            (ModelConstants{.norm_epsilon = 1e-6, .last_norm_epsilon = 1e-4, .gelu = nn::GeluForm::kTanh}));
  EXPECT_EQ(constants_read(NamesOf::kHuggingFace, model_named("gpt2"),
                           {{"model_type", "gpt2"},
                            {"n_head", text_config(model_named("gpt2")).heads},
                            {"layer_norm_epsilon", 1e-3},
                            {"activation_function", "gelu"}}),
            (ModelConstants{.norm_epsilon = 1e-3, .last_norm_epsilon = 1e-3}));
  EXPECT_EQ(constants_read(NamesOf::kOurs, model_named("vit"), json()),
            constants_by_names(NamesOf::kOurs, model_named("vit")));
}

TEST(PublicConstants, ConfigOfTimmCountsForItsOwnNames) {
  const json config{{"architecture", "vit_tiny_patch16_224"}, {"model_args", {{"act_layer", "gelu_tanh"}}}};
  EXPECT_EQ(constants_read(NamesOf::kTimm, model_named("vit"), config).gelu, nn::GeluForm::kTanh);
  EXPECT_EQ(constants_read(NamesOf::kOurs, model_named("vit"), config),
            constants_by_names(NamesOf::kOurs, model_named("vit")));
  const json with_epsilon{{"architecture", "convnext_base"}, {"model_args", {{"norm_eps", 1e-5}}}};
  EXPECT_EQ(constants_read(NamesOf::kTimm, model_named("convnext"), with_epsilon),
            (ModelConstants{.norm_epsilon = 1e-5, .last_norm_epsilon = 1e-5}));
  EXPECT_EQ(constants_read(NamesOf::kOurs, model_named("resnet50"), {{"architecture", "resnet50"}}), ModelConstants());
}

TEST(PublicConstants, WhatOurModelsDoNotComputeIsRefused) {
  const auto refused = [](NamesOf names, const ModelOptions& model, const json& config, const std::string& words) {
    EXPECT_THAT([&] { (void)constants_read(names, model, config); }, ThrowsMessage<CheckpointError>(HasSubstr(words)))
        << config;
  };
  const auto of = [](const char* type, const json& more) {
    json config{{"model_type", type}};
    config.update(more);
    return config;
  };
  refused(NamesOf::kOurs, model_named("vit"), of("vit", {{"hidden_act", "quick_gelu"}}), "hidden_act = \"quick_gelu\"");
  refused(NamesOf::kOurs, model_named("vit"), of("vit", {{"num_attention_heads", 6}}),
          "of model.size = \"tiny\" has 3");
  refused(NamesOf::kOurs, model_named("vit"), of("vit", {{"layer_norm_eps", "small"}}),
          "config.json: layer_norm_eps = \"small\" is not valid: expected a number above 0; correct the file");
  refused(NamesOf::kOurs, model_named("gpt2"), of("gpt2", {{"n_head", 12}}),
          "number of attention heads = 12, but the model has");
  refused(NamesOf::kOurs, model_named("gpt2"), of("gpt2", {{"scale_attn_by_inverse_layer_idx", true}}),
          "scale_attn_by");
  refused(NamesOf::kHuggingFace, model_named("resnet50"), of("resnet", {{"downsample_in_bottleneck", true}}), "v1.5");
  refused(NamesOf::kHuggingFace, model_named("convnext"), of("convnext", {{"hidden_act", "relu"}}),
          "hidden_act = \"relu\"");
  refused(NamesOf::kTimm, model_named("vit"), {{"architecture", "vit_base_patch16_clip_quickgelu_224"}},
          "architecture = ");
  refused(NamesOf::kOurs, model_named("resnet50"),
          {{"architecture", "resnet50"}, {"model_args", {{"act_layer", "silu"}}}}, "act_layer = \"silu\"");
}

// Anti-aliasing has no tensors, so these files look like ours.
TEST(PublicConstants, OtherResNetsOfTimmAreRefused) {
  const auto read = [](const char* model, const json& config) {
    return [=] { (void)constants_read(NamesOf::kOurs, model_named(model), config); };
  };
  for (const char* name : {"resnet50", "tv_resnet50", "swsl_resnet50", "gluon_resnet50_v1b"})
    EXPECT_NO_THROW(read("resnet50", {{"architecture", name}})()) << name;
  for (const char* name : {"resnetblur50", "resnetaa50", "resnet50_gn", "gluon_resnet50_v1s", "resnet101"}) {
    EXPECT_THAT(read("resnet50", {{"architecture", name}}),
                ThrowsMessage<CheckpointError>(HasSubstr(
                    "has architecture = \"" + std::string(name) +
                    "\", but model.name = \"resnet50\"; the logits would differ from the original. Choose the model")))
        << name;
  }
  const auto with = [](const json& arguments) { return json{{"architecture", "resnet18"}, {"model_args", arguments}}; };
  EXPECT_NO_THROW(read("resnet18", with({{"aa_layer", nullptr}, {"output_stride", 32}}))());
  EXPECT_THROW(read("resnet18", with({{"aa_layer", "avg"}}))(), CheckpointError);
  EXPECT_THROW(read("resnet18", with({{"output_stride", 8}}))(), CheckpointError);
}

TEST(PublicConstants, FilesBesideWeightsCountIfTheirLibraryHasTheNames) {
  const json transformers{{"model_type", "vit"}}, timm{{"architecture", "vit_tiny_patch16_224"}};
  struct Case {
    NamesOf names;
    const char* model;
    bool of_transformers, of_timm;
  };
  for (const auto& [names, model, of_transformers, of_timm] :
       {Case{NamesOf::kOurs, "vit", true, false}, Case{NamesOf::kHuggingFace, "vit", true, false},
        Case{NamesOf::kTimm, "vit", false, true}, Case{NamesOf::kTorchvision, "vit", false, false},
        Case{NamesOf::kOurs, "resnet50", false, true}, Case{NamesOf::kHuggingFace, "resnet50", true, false},
        Case{NamesOf::kOurs, "convnext", false, false}}) {
    EXPECT_EQ(files_of_names(names, model, transformers).config, of_transformers) << model;
    EXPECT_EQ(files_of_names(names, model, timm).config, of_timm) << model;
    EXPECT_EQ(files_of_names(names, model, json()).preprocessor, of_transformers) << model;
  }
}

TEST(PublicConstants, PixelsAreAsThePreprocessorHasThem) {
  const auto pixels = [](const json& config, const json& preprocessor) {
    return public_pixels(config, preprocessor, "preprocessor_config.json");
  };
  EXPECT_THAT(pixels({}, {}).mean, IsEmpty());
  const json half{{"image_mean", {0.5, 0.5, 0.5}}, {"image_std", {0.5, 0.5, 0.25}}, {"resample", 3}};
  EXPECT_THAT(pixels({}, half).mean, ElementsAre(0.5, 0.5, 0.5));
  EXPECT_THAT(pixels({}, half).stddev, ElementsAre(0.5, 0.5, 0.25));
  EXPECT_EQ(pixels({}, half).interpolation, "bicubic");
  json none = half;
  none["do_normalize"] = false;
  EXPECT_THAT(pixels({}, none).mean, ElementsAre(0, 0, 0));
  EXPECT_THAT(pixels({}, none).stddev, ElementsAre(1, 1, 1));
  const json timm{{"pretrained_cfg", {{"mean", {0.1}}, {"std", {0.2}}, {"interpolation", "bilinear"}}}};
  EXPECT_THAT(pixels(timm, {}).mean, ElementsAre(0.1));
  EXPECT_EQ(pixels(timm, {}).interpolation, "bilinear");
  for (const json& wrong : {json{{"image_mean", {0.5}}}, json{{"image_mean", {0.5}}, {"image_std", {0.0}}},
                            json{{"image_mean", "half"}, {"image_std", {1}}}})
    EXPECT_THAT([&] { (void)pixels({}, wrong); }, ThrowsMessage<CheckpointError>(HasSubstr(" is not valid: expected ")))
        << wrong;
}

}  // namespace
}  // namespace sluice::models
