// Only the tables. With the libraries' own models: tests/app/public_weights_test.py.
#include "models/foreign_names.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sluice::models {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

struct Case {
  NamesOf source;
  std::string model, theirs;
  std::vector<std::string> ours;
};

TEST(ForeignNames, BecomeOurs) {
  const std::string block = "vit.encoder.layer.11.", attention = block + "attention.attention.";
  const std::vector<Case> cases{
      {NamesOf::kTimm, "vit", "pos_embed", {"vit.embeddings.position_embeddings"}},
      {NamesOf::kTimm,
       "vit",
       "blocks.11.attn.qkv.bias",
       {attention + "query.bias", attention + "key.bias", attention + "value.bias"}},
      {NamesOf::kTimm, "vit", "norm.weight", {"vit.layernorm.weight"}},
      {NamesOf::kTorchvision,
       "vit",
       "encoder.layers.encoder_layer_11.self_attention.in_proj_weight",
       {attention + "query.weight", attention + "key.weight", attention + "value.weight"}},
      {NamesOf::kTorchvision, "vit", "encoder.layers.encoder_layer_11.mlp.3.bias", {block + "output.dense.bias"}},
      {NamesOf::kTorchvision,
       "vit",
       "encoder.layers.encoder_layer_11.mlp.linear_2.bias",
       {block + "output.dense.bias"}},
      {NamesOf::kHuggingFace, "vit", "vit.layers.11.attention.q_proj.weight", {attention + "query.weight"}},
      {NamesOf::kHuggingFace, "vit", "vit.layers.11.layernorm_after.bias", {block + "layernorm_after.bias"}},
      {NamesOf::kHuggingFace, "vit", "encoder.layer.11.output.dense.bias", {block + "output.dense.bias"}},
      {NamesOf::kHuggingFace, "vit", "pooler.dense.weight", {}},
      {NamesOf::kHuggingFace, "resnet50", "resnet.embedder.embedder.normalization.running_var", {"bn1.running_var"}},
      {NamesOf::kHuggingFace,
       "resnet18",
       "resnet.encoder.stages.2.layers.10.layer.1.normalization.bias",
       {"layer3.10.bn2.bias"}},
      {NamesOf::kHuggingFace,
       "resnet18",
       "encoder.stages.0.layers.0.shortcut.convolution.weight",
       {"layer1.0.downsample.0.weight"}},
      {NamesOf::kHuggingFace, "resnet18", "classifier.1.bias", {"fc.bias"}},
      {NamesOf::kTimm, "vgg19_bn", "pre_logits.fc2.weight", {"classifier.3.weight"}},
      {NamesOf::kTimm, "convnext", "stages.2.blocks.26.gamma", {"features.5.26.layer_scale"}},
      {NamesOf::kTimm, "convnext", "stages.3.downsample.1.weight", {"features.6.1.weight"}},
      {NamesOf::kTimm, "convnext", "stem.1.bias", {"features.0.1.bias"}},
      {NamesOf::kHuggingFace,
       "convnext",
       "convnext.encoder.stages.0.layers.2.pwconv2.weight",
       {"features.1.2.block.5.weight"}},
      {NamesOf::kHuggingFace, "convnext", "convnext.layernorm.weight", {"classifier.0.weight"}},
      {NamesOf::kHuggingFace, "gpt2", "h.3.attn.c_attn.weight", {"transformer.h.3.attn.c_attn.weight"}},
      {NamesOf::kHuggingFace, "gpt2", "transformer.h.3.attn.bias", {}},
  };
  for (const auto& [source, model, theirs, ours] : cases) {
    const auto found = our_names(source, model, theirs);
    ASSERT_TRUE(found) << theirs;
    EXPECT_EQ(*found, ours) << theirs;
  }
}

TEST(ForeignNames, KnowNothingElse) {
  for (const char* name :
       {"", "blocks", "blocks.", "blocks.x.norm1.weight", "blocks.0.norm12.weight", "blocks.00000.norm1.weight",
        "blocks.12345.norm1.weight", "blocks.-1.norm1.weight", "xblocks.0.norm1.weight", "head_dist.weight"}) {
    EXPECT_FALSE(our_names(NamesOf::kTimm, "vit", name)) << name;
  }
  EXPECT_FALSE(our_names(NamesOf::kTimm, "resnet50", "blocks.0.norm1.weight"));
  EXPECT_FALSE(our_names(NamesOf::kOurs, "vit", "vit.layernorm.weight"));
}

TEST(ForeignNames, HaveTheirSources) {
  EXPECT_THAT(foreign_sources("vit"), ElementsAre(NamesOf::kHuggingFace, NamesOf::kTorchvision, NamesOf::kTimm));
  EXPECT_THAT(foreign_sources("resnet152"), ElementsAre(NamesOf::kHuggingFace));
  EXPECT_THAT(foreign_sources("mlp"), IsEmpty());
  EXPECT_EQ(in_words(NamesOf::kTimm), "timm's");
}

}  // namespace
}  // namespace sluice::models
