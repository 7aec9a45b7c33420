#include "models/freeze_points.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "models/support.h"

namespace sluice::models {
namespace {

using testing::ElementsAre;
using testing::ElementsAreArray;

int units_of(const ModelOptions& options, FreezeUnit unit) {
  return static_cast<int>(freeze_points(options, unit).size()) - 1;
}

TEST(FreezePoints, OfEveryModelGrowAndLeaveTheHead) {
  for (const ModelInfo& info : list_models()) {
    const ModelOptions options = options_of(info.name, info.size);
    const auto blocks = freeze_points(options, FreezeUnit::kBlock),
               halves = freeze_points(options, FreezeUnit::kHalfBlock);
    for (const auto& points : {blocks, halves}) {
      ASSERT_GE(points.size(), 2U) << info.name;
      EXPECT_EQ(points.front(), 0) << info.name;
      EXPECT_EQ(std::ranges::adjacent_find(points, std::greater_equal<>()), points.end()) << info.name;
      EXPECT_LT(points.back(), info.layers) << info.name;
    }
    EXPECT_EQ(blocks.back(), halves.back()) << info.name;
    EXPECT_TRUE(std::ranges::includes(halves, blocks)) << info.name;
  }
}

// Blocks as in the papers; for VGG the convolutions.
TEST(FreezePoints, CountTheBlocksOfThePapers) {
  const std::map<std::pair<std::string, std::string>, std::pair<int, int>> expected{
      {{"vit", "nano"}, {4, 8}},         {{"vit", "tiny"}, {12, 24}},       {{"vit", "small"}, {12, 24}},
      {{"vit", "base"}, {12, 24}},       {{"gpt2", "nano"}, {2, 4}},        {{"gpt2", "tiny"}, {4, 8}},
      {{"gpt2", "small"}, {12, 24}},     {{"resnet8", ""}, {3, 3}},         {{"resnet18", ""}, {8, 8}},
      {{"vgg16", ""}, {13, 13}},         {{"vgg16_bn", ""}, {13, 13}},      {{"mlp", ""}, {2, 2}},
      {{"toy_cnn", ""}, {3, 3}},         {{"vit", "large"}, {24, 48}},      {{"resnet34", ""}, {16, 16}},
      {{"resnet50", ""}, {16, 16}},      {{"resnet101", ""}, {33, 33}},     {{"resnet152", ""}, {50, 50}},
      {{"vgg11", ""}, {8, 8}},           {{"vgg11_bn", ""}, {8, 8}},        {{"vgg13", ""}, {10, 10}},
      {{"vgg13_bn", ""}, {10, 10}},      {{"vgg19", ""}, {16, 16}},         {{"vgg19_bn", ""}, {16, 16}},
      {{"convnext", "tiny"}, {18, 18}},  {{"convnext", "small"}, {36, 36}}, {{"convnext", "base"}, {36, 36}},
      {{"convnext", "large"}, {36, 36}}, {{"bert", "nano"}, {2, 4}},        {{"bert", "tiny"}, {4, 8}},
      {{"bert", "base"}, {12, 24}},      {{"bert", "large"}, {24, 48}},     {{"llama", "nano"}, {2, 4}},
      {{"llama", "tiny"}, {4, 8}},       {{"llama", "1b"}, {16, 32}},
  };
  for (const ModelInfo& info : list_models()) {
    const ModelOptions options = options_of(info.name, info.size);
    const auto [blocks, halves] = expected.at({info.name, info.size});
    EXPECT_EQ(units_of(options, FreezeUnit::kBlock), blocks) << info.name << " " << info.size;
    EXPECT_EQ(units_of(options, FreezeUnit::kHalfBlock), halves) << info.name << " " << info.size;
  }
}

std::vector<std::int64_t> parameters_by_unit(const ModelOptions& options, FreezeUnit unit) {
  std::vector<int> ends = freeze_points(options, unit);
  const Model model = make_model(options);
  ends.push_back(static_cast<int>(model.layers.size()));
  std::vector<std::int64_t> counts;
  for (std::size_t k = 1; k < ends.size(); ++k) {
    counts.push_back(0);
    for (int i = ends[k - 1]; i < ends[k]; ++i) {
      for (const auto* p : model.layers[i]->parameters()) counts.back() += p->value.numel();
    }
  }
  return counts;
}

// ViT-B/16, 224 pixels, 1000 classes, as PipeTransformer counts it: embeddings 0.742656, attention 2.363904, MLP
// 4.723968, final norm 0.001536, head 768 C + C, all in millions.
TEST(FreezePoints, OfVitBase16HaveThePublishedParameters) {
  ModelOptions options = options_of("vit", "base");
  options.image_size = 224;
  options.patch_size = 16;
  options.classes = 1000;
  options.draw_weights = false;
  constexpr std::int64_t kEmbeddings = 742'656, kAttention = 2'363'904, kMlp = 4'723'968;
  std::vector<std::int64_t> blocks(12, kAttention + kMlp), halves;
  blocks.front() += kEmbeddings;
  blocks.push_back(1536 + 769'000);
  EXPECT_THAT(parameters_by_unit(options, FreezeUnit::kBlock), ElementsAreArray(blocks));
  for (int i = 0; i < 24; ++i) halves.push_back(i % 2 == 0 ? kAttention : kMlp);
  halves.front() += kEmbeddings;
  halves.push_back(blocks.back());
  EXPECT_THAT(parameters_by_unit(options, FreezeUnit::kHalfBlock), ElementsAreArray(halves));
}

TEST(FreezePoints, OfConvNextKeepTheLayersBetweenItsBlocks) {
  EXPECT_THAT(freeze_points(options_of("convnext", "tiny"), FreezeUnit::kBlock),
              ElementsAre(0, 2, 3, 4, 6, 7, 8, 10, 11, 12, 13, 14, 15, 16, 17, 18, 20, 21, 22));
}

TEST(FreezePoints, OfVggLeaveTheClassifier) {
  ModelOptions options = options_of("vgg16");
  options.draw_weights = false;
  // torchvision's: 14.7 of 138 million are convolutions.
  EXPECT_EQ(parameters_by_unit(options, FreezeUnit::kBlock).back(), (512 * 49 + 1) * 4096 + 4097 * 4096 + 4097 * 10);
}

std::vector<int> points_of(const std::vector<std::string>& layers, FreezeUnit unit = FreezeUnit::kBlock) {
  return freeze_points(layers, unit);
}

TEST(FreezePoints, ComeFromTheLayersNames) {
  const std::vector<std::string> bert{"bert.embeddings",
                                      "bert.encoder.layer.0.attention",
                                      "bert.encoder.layer.0.mlp",
                                      "bert.encoder.layer.1.attention",
                                      "bert.encoder.layer.1.mlp",
                                      "bert.pooler",
                                      "classifier"};
  EXPECT_THAT(points_of(bert), ElementsAre(0, 3, 5));
  EXPECT_THAT(points_of(bert, FreezeUnit::kHalfBlock), ElementsAre(0, 2, 3, 4, 5));
  // A layer between two blocks freezes with the block after it.
  EXPECT_THAT(points_of({"conv1", "bn1", "layer1.0", "layer1.1", "down", "layer2.0", "norm", "fc"}),
              ElementsAre(0, 3, 4, 6));
  EXPECT_THAT(points_of({"features.0", "features.2", "classifier.0", "classifier.3"}), ElementsAre(0, 1, 2));
  // Block 10 is not block 1.
  EXPECT_THAT(points_of({"h.1.a", "h.1.b", "h.10.a", "h.10.b", "head"}), ElementsAre(0, 2, 4));
  EXPECT_THAT(points_of({"net.0", "net.1", "net.2"}), ElementsAre(0, 1, 2));
  EXPECT_THAT(points_of({"fc1", "fc2", "fc3"}), ElementsAre(0, 1, 2));
  EXPECT_THAT(points_of({"fc"}), ElementsAre(0));
}

}  // namespace
}  // namespace sluice::models
