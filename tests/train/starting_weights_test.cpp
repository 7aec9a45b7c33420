// A file as the start of training: the body has to be the model's own, the head may be another's or none.
#include "train/setup/starting_weights.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <set>

#include "core/concat.h"
#include "core/error.h"
#include "engine/reference.h"
#include "engine/state.h"
#include "support/files.h"

namespace sluice::train {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

namespace fs = std::filesystem;
using Change = std::function<void(storage::TensorMap&)>;

models::ModelOptions model_of(const std::string& name, int classes, std::uint64_t seed) {
  models::ModelOptions options = engine::test::small_model(name);
  options.classes = classes;
  options.seed = seed;
  return options;
}

storage::TensorMap tensors_of(const models::ModelOptions& options) {
  return engine::test::ReferenceModel(options).tensors();
}

// Every value is another than that of fresh ones.
storage::TensorMap trained(const models::ModelOptions& options) {
  storage::TensorMap tensors;
  for (const auto& [name, tensor] : tensors_of(options)) tensors[name] = (tensor.detach() + 1).to(tensor.scalar_type());
  return tensors;
}

// Shapes alone, in hardly any memory.
storage::TensorMap shapes_of(models::ModelOptions options) {
  options.draw_weights = false;
  storage::TensorMap tensors;
  for (const auto& layer : models::make_model(options).layers) {
    for (const auto* parameter : layer->parameters())
      tensors[parameter->name] = at::zeros({}).expand(parameter->value.sizes());
    for (const auto* buffer : layer->buffers()) tensors[buffer->name] = at::zeros({}).expand(buffer->value.sizes());
  }
  return tensors;
}

void expect_equal(const storage::TensorMap& found, const storage::TensorMap& expected) {
  ASSERT_EQ(found.size(), expected.size());
  for (const auto& [name, tensor] : expected) EXPECT_TRUE(at::equal(found.at(name), tensor)) << name;
}

class StartingWeightsFile : public testing::Test {
 protected:
  fs::path save(const storage::TensorMap& tensors) const {
    storage::write_safetensors(dir_ / "weights", tensors);
    return dir_ / "weights";
  }
  // What the loading says in the log.
  std::string load(engine::Composition& grid, const models::ModelOptions& model,
                   const storage::TensorMap& tensors) const {
    const fs::path file = save(tensors);
    testing::internal::CaptureStderr();
    try {
      load_starting_weights(grid, model, file);
    } catch (...) {
      (void)testing::internal::GetCapturedStderr();
      throw;
    }
    return testing::internal::GetCapturedStderr();
  }
  // The message; empty: nothing was refused.
  std::string refusal(const models::ModelOptions& model, const storage::TensorMap& tensors) const {
    engine::Composition grid = engine::test::make_grid(model, "gpipe", 1, 1);
    try {
      (void)load(grid, model, tensors);
    } catch (const CheckpointError& error) {
      return error.what();
    }
    return {};
  }
  // That of what needs exactly the model's tensors.
  std::string strict_refusal(const models::ModelOptions& model, const storage::TensorMap& tensors) const {
    engine::Composition grid = engine::test::make_grid(model, "gpipe", 1, 1);
    try {
      engine::load_model(grid, tensors, (dir_ / "weights").string());
    } catch (const CheckpointError& error) {
      return error.what();
    }
    return {};
  }
  sluice::test::TempDir dir_;
};

TEST_F(StartingWeightsFile, OfOtherClassesGivesTheBodyAndLeavesTheHeadFreshInEveryReplicaOfAnyPlan) {
  const std::vector<std::pair<std::string, std::set<std::string>>> heads{
      {"resnet8", {"fc.weight", "fc.bias"}},
      {"vit", {"classifier.weight", "classifier.bias"}},
      {"mlp", {"fc3.weight", "fc3.bias"}},
      {"toy_cnn", {"fc.weight", "fc.bias"}},
  };
  for (const auto& [name, head] : heads) {
    const models::ModelOptions model = model_of(name, 5, 1);
    const storage::TensorMap fresh = tensors_of(model), file = trained(model_of(name, 9, 2));
    for (const auto& [stages, replicas] : {std::pair{1, 1}, std::pair{2, 2}, std::pair{3, 1}}) {
      SCOPED_TRACE(concat(name, " in ", stages, " stages, ", replicas, " replicas"));
      engine::Composition grid = engine::test::make_grid(model, "1f1b", stages, replicas);
      const std::string text = load(grid, model, file);
      storage::TensorMap expected = file;
      for (const std::string& tensor : head) expected[tensor] = fresh.at(tensor);
      expect_equal(engine::model_tensors(grid), expected);
      for (int s = 0; s < stages; ++s) {
        const auto& last = grid.executor->stage(ReplicaId{replicas - 1}, StageId{s}).parameters();
        EXPECT_TRUE(at::equal(last.values(), grid.executor->stage(ReplicaId{0}, StageId{s}).parameters().values()));
      }
      EXPECT_THAT(text, HasSubstr(concat((dir_ / "weights").string(), ": ", file.size() - 2, " tensors taken; fresh: ",
                                         *head.rbegin(), ", ", *head.begin(), " (the file has 9 classes, the model 5)",
                                         "; unused: ", *head.begin(), " [9], ", *head.rbegin(), " [9, ")));
    }
  }
}

TEST_F(StartingWeightsFile, OfAsManyClassesGivesAllTensors) {
  for (const char* name : {"resnet8", "vit", "gpt2"}) {
    const models::ModelOptions model = engine::test::small_model(name);
    models::ModelOptions other = model;
    other.seed = 99;
    const storage::TensorMap file = trained(other);
    engine::Composition grid = engine::test::make_grid(model, "1f1b", 2, 1);
    const std::string text = load(grid, model, file);
    expect_equal(engine::model_tensors(grid), file);
    EXPECT_THAT(text, HasSubstr(concat(": ", file.size(), " tensors taken\n")));
  }
}

TEST_F(StartingWeightsFile, OfABackboneLeavesTheHeadFresh) {
  const models::ModelOptions model = model_of("vit", 5, 1);
  storage::TensorMap file = trained(model_of("vit", 5, 2));
  file.erase("classifier.weight"), file.erase("classifier.bias");
  engine::Composition grid = engine::test::make_grid(model, "1f1b", 2, 1);
  EXPECT_THAT(load(grid, model, file),
              HasSubstr(" tensors taken; fresh: classifier.weight, classifier.bias (not in the file)\n"));
  storage::TensorMap expected = file;
  for (const char* tensor : {"classifier.weight", "classifier.bias"}) expected[tensor] = tensors_of(model).at(tensor);
  expect_equal(engine::model_tensors(grid), expected);
}

TEST_F(StartingWeightsFile, WithAFrozenBodyGivesItItsTensors) {
  const models::ModelOptions model = model_of("resnet8", 5, 1);
  engine::ComposeOptions options{.make_layers = [&model] { return models::make_model(model).layers; },
                                 .optimizer = {.kind = "sgd"}};
  for (int i = 0; i < 4; ++i) options.devices.push_back({device::DeviceKind::kCpu, i});
  engine::Composition grid = engine::compose(
      {.partition = {{1, 2}}, .replicas = 2, .global_batch = 4, .schedule = "gpipe", .frozen_layers = 2}, options);
  const storage::TensorMap file = trained(model_of("resnet8", 3, 2));
  (void)load(grid, model, file);
  storage::TensorMap expected = file;
  for (const char* tensor : {"fc.weight", "fc.bias"}) expected[tensor] = tensors_of(model).at(tensor);
  expect_equal(engine::model_tensors(grid), expected);
}

// A file that was renamed, damaged or made for another model must not train from fresh weights.
TEST_F(StartingWeightsFile, RefusesAllElseInTheWordsOfACheckpoint) {
  const models::ModelOptions model = model_of("vit", 5, 1);
  const storage::TensorMap same = trained(model_of("vit", 5, 2)), other = trained(model_of("vit", 9, 2));
  const std::string body = "vit.encoder.layer.1.layernorm_after.weight";
  const std::vector<std::pair<std::string, Change>> changes{
      {"a body tensor is missing", [&](auto& t) { t.erase(body); }},
      {"a body tensor has another shape", [&](auto& t) { t[body] = at::zeros({63}, at::kDouble); }},
      {"a body tensor has integers", [&](auto& t) { t[body] = at::zeros({64}, at::kLong); }},
      {"a tensor is left over", [](auto& t) { t["vit.encoder.norm.bias"] = at::zeros({64}, at::kDouble); }},
      {"the norm before the classifier is missing",
       [](auto& t) { t.erase("vit.layernorm.weight"), t.erase("vit.layernorm.bias"); }},
      {"half of the norm is missing", [](auto& t) { t.erase("vit.layernorm.bias"); }},
      {"the norm has another width", [](auto& t) { t["vit.layernorm.bias"] = at::zeros({9}, at::kDouble); }},
      {"half of the classifier is missing", [](auto& t) { t.erase("classifier.bias"); }},
      {"the halves are for different classes", [](auto& t) { t["classifier.bias"] = at::zeros({7}, at::kDouble); }},
      {"the classifier has another width",
       [](auto& t) {
         t["classifier.weight"] = at::zeros({9, 63}, at::kDouble);
       }},
      {"the classifier has another rank", [](auto& t) { t["classifier.weight"] = at::zeros({9 * 64}, at::kDouble); }},
      {"the classifier has no class",
       [](auto& t) {
         t["classifier.weight"] = at::zeros({0, 64}, at::kDouble), t["classifier.bias"] = at::zeros({0}, at::kDouble);
       }},
      {"the classifier has integers", [](auto& t) { t["classifier.bias"] = at::zeros({9}, at::kLong); }},
      {"the classifier has another name",
       [](auto& t) {
         for (const char* half : {"weight", "bias"}) {
           t[concat("head.", half)] = t.at(concat("classifier.", half));
           t.erase(concat("classifier.", half));
         }
       }},
      {"all is missing", [](auto& t) { t.clear(); }},
  };
  for (const auto& [what, change] : changes) {
    for (const auto* whole : {&same, &other}) {
      SCOPED_TRACE(what + (whole == &other ? ", other classes" : ""));
      storage::TensorMap file = *whole;
      change(file);
      const std::string found = refusal(model, file);
      EXPECT_NE(found, "");
      if (whole == &same) {
        EXPECT_THAT(found, testing::AnyOf(strict_refusal(model, file), HasSubstr("'head.bias' does not belong")));
      }
    }
  }
  EXPECT_THAT(refusal(model, trained(model_of("mlp", 5, 1))), HasSubstr("has no tensor 'vit."));
}

TEST_F(StartingWeightsFile, RefusesWhatIsNotFiniteAlsoWhereItIsUnused) {
  const models::ModelOptions model = model_of("resnet8", 5, 1);
  for (const char* tensor : {"fc.bias", "bn1.weight"}) {
    storage::TensorMap file = trained(model_of("resnet8", 9, 2));
    file.at(tensor)[0].fill_(std::numeric_limits<double>::quiet_NaN());
    EXPECT_THAT(refusal(model, file),
                HasSubstr(concat(tensor, " has 1 NaN; use an earlier checkpoint or other weights")));
  }
}

// The matrix of the head is the token table of the body.
TEST_F(StartingWeightsFile, OfAModelOfTokensHasToFitWhole) {
  const models::ModelOptions model = engine::test::small_model("gpt2");
  storage::TensorMap file = trained(model);
  file["lm_head.weight"] = file.at("transformer.wte.weight").clone();
  EXPECT_EQ(refusal(model, file), "");  // a copy under the head's name is none too many
  file.at("lm_head.weight")[0][0] += 1;
  EXPECT_THAT(refusal(model, file), HasSubstr("'lm_head.weight' is not equal to 'transformer.wte.weight'"));
  file.erase("lm_head.weight");
  for (const char* tensor : {"transformer.wte.weight", "transformer.ln_f.weight"}) {
    storage::TensorMap without = file;
    without.erase(tensor);
    EXPECT_THAT(refusal(model, without), HasSubstr(concat("has no tensor '", tensor, "'")));
  }
  file.erase("transformer.ln_f.weight"), file.erase("transformer.ln_f.bias");
  EXPECT_THAT(refusal(model, file), HasSubstr("has no tensor 'transformer.ln_f."));
  models::ModelOptions larger = model;
  ++larger.vocabulary;
  EXPECT_THAT(refusal(model, trained(larger)), HasSubstr("tensor 'transformer.wte.weight' is "));
}

// The first two linear maps of VGG's head do not know the classes.
TEST(ChooseStartingWeights, TakesWhatFitsOfAHeadOfSeveralLayers) {
  models::ModelOptions model(ModelSpec{.name = "vgg16_bn", .classes = 10, .channels = 3, .image_size = 32});
  models::ModelOptions imagenet = model;
  imagenet.classes = 1000;
  const storage::TensorMap file = shapes_of(imagenet);
  const StartingWeights weights = choose_starting_weights(model, file);
  EXPECT_THAT(weights.of_other_classes, ElementsAre("classifier.6.weight", "classifier.6.bias"));
  EXPECT_THAT(weights.lacking, ElementsAre());
  EXPECT_EQ(weights.taken.size(), file.size() - 2);
  EXPECT_TRUE(weights.taken.contains("classifier.3.weight"));
  EXPECT_EQ(weights.file_classes, 1000);

  storage::TensorMap features = file;
  std::erase_if(features, [](const auto& entry) { return entry.first.starts_with("classifier."); });
  EXPECT_THAT(choose_starting_weights(model, features).lacking,
              ElementsAre("classifier.0.weight", "classifier.0.bias", "classifier.3.weight", "classifier.3.bias",
                          "classifier.6.weight", "classifier.6.bias"));
  features["classifier.6.weight"] = at::zeros({10, 4096});
  EXPECT_THAT(choose_starting_weights(model, features).lacking, ElementsAre()) << "what is before it is damage";
}

// Fine-tuned public models have a dropout before the last layer, which numbers them.
TEST(ChooseStartingWeights, LeavesWhatTheFileHasInThePlaceOfTheHead) {
  const models::ModelOptions model = model_of("resnet8", 10, 1);
  storage::TensorMap file = shapes_of(model);
  file.erase("fc.weight"), file.erase("fc.bias");
  file["fc.1.weight"] = at::zeros({3, 64});
  const StartingWeights weights = choose_starting_weights(model, file);
  EXPECT_THAT(weights.lacking, ElementsAre("fc.weight", "fc.bias"));
  EXPECT_EQ(in_words(weights), concat(file.size() - 1, " tensors taken; fresh: fc.weight, fc.bias (not in the file)",
                                      "; unused: fc.1.weight [3, 64]"));
}

}  // namespace
}  // namespace sluice::train
