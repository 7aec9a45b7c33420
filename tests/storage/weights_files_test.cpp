#include "storage/weights_files.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/concat.h"
#include "core/error.h"
#include "storage/checkpoint_store.h"
#include "storage/files.h"
#include "support/files.h"

namespace sluice::storage {
namespace {

using testing::AllOf;
using testing::HasSubstr;

namespace fs = std::filesystem;

constexpr const char* kIndex = "model.safetensors.index.json";

class WeightsFiles : public testing::Test {
 protected:
  void SetUp() override {
    write_safetensors(dir_ / "one.safetensors", {{"a", at::ones({2})}, {"b", at::zeros({3})}});
    write_safetensors(dir_ / "two.safetensors", {{"c", at::ones({4, 5})}});
    write_index(R"({"weight_map": {"a": "one.safetensors", "c": "two.safetensors", "b": "one.safetensors"}})");
  }
  void write_index(const std::string& text) const { write_text_atomically(dir_ / kIndex, text); }
  static std::string refusal(const fs::path& path) {
    try {
      (void)read_weights(resolve_weights(path));
    } catch (const CheckpointError& error) {
      return error.what();
    }
    return "accepted";
  }
  [[nodiscard]] fs::path folder() const { return dir_ / ""; }

  test::TempDir dir_;
};

TEST_F(WeightsFiles, AreOneTableWhetherNamedByTheFolderOrTheIndex) {
  for (const fs::path& path : {folder(), dir_ / kIndex}) {
    const TensorMap tensors = read_weights(path);
    ASSERT_EQ(tensors.size(), 3U);
    EXPECT_TRUE(at::equal(tensors.at("b"), at::zeros({3})));
    EXPECT_EQ(tensors.at("c").sizes(), (std::vector<std::int64_t>{4, 5}));
  }
  EXPECT_EQ(read_weights(dir_ / "one.safetensors").size(), 2U);
  write_safetensors(dir_ / "model.safetensors", {{"whole", at::ones({1})}});
  EXPECT_TRUE(read_weights(folder()).contains("whole")) << "one file goes before several";
}

TEST_F(WeightsFiles, OfARunAreThoseOfItsNewestWholeCheckpoint) {
  const fs::path run = dir_ / "run";
  fs::create_directories(run / "checkpoints");
  EXPECT_THAT(refusal(run), HasSubstr("there is no complete checkpoint in"));
  CheckpointStore store(run / "checkpoints", 9);
  for (const int step : {4, 8}) store.save(step, {.model = {{"w", at::full({2}, step)}}, .optimizer = {}});
  EXPECT_EQ(resolve_weights(run), run / "checkpoints/step-8");
  EXPECT_TRUE(at::equal(read_weights(resolve_weights(run)).at("w"), at::full({2}, 8)));
  fs::resize_file(run / "checkpoints/step-8/model.safetensors", 20);
  EXPECT_TRUE(at::equal(read_weights(resolve_weights(run)).at("w"), at::full({2}, 4)));
  EXPECT_EQ(resolve_weights(run / "checkpoints/step-4"), run / "checkpoints/step-4");
  EXPECT_EQ(read_about_weights(resolve_weights(run)).folder, run / "checkpoints/step-4")
      << "whose state.json has the constants";
}

TEST_F(WeightsFiles, ThatAreMissingOrDamagedAreRefused) {
  fs::resize_file(dir_ / "two.safetensors", fs::file_size(dir_ / "two.safetensors") - 3);
  EXPECT_THAT(refusal(folder()), HasSubstr("two.safetensors"));
  fs::remove(dir_ / "two.safetensors");
  EXPECT_THAT(refusal(folder()), AllOf(HasSubstr(kIndex), HasSubstr("names \"two.safetensors\", which is missing")));
  fs::remove(dir_ / kIndex);
  EXPECT_THAT(refusal(folder()), HasSubstr("has neither model.safetensors nor model.safetensors.index.json"));
  for (const char* name : {"none.safetensors", "none.json"}) {
    EXPECT_EQ(refusal(dir_ / name),
              concat("there is no weights file or folder ", (dir_ / name).string(),
                     "; set model.weights (or --weights) to a safetensors file, an index of several, a folder with one "
                     "of these, or a run directory"));
  }
}

TEST_F(WeightsFiles, ThatDisagreeWithTheirIndexAreRefused) {
  write_safetensors(dir_ / "two.safetensors", {{"c", at::ones({4})}, {"a", at::ones({2})}});
  EXPECT_THAT(refusal(folder()), HasSubstr("has tensor \"a\" twice, in one.safetensors and in two.safetensors"));
  write_safetensors(dir_ / "two.safetensors", {{"d", at::ones({4})}});
  EXPECT_THAT(refusal(folder()), HasSubstr("says that two.safetensors has tensor \"c\", but the file lacks it"));
}

TEST_F(WeightsFiles, WithAnInvalidIndexAreRejected) {
  for (const char* text :
       {"", "[]", "3", "{", "{\"weight_map\": {}}", "{\"weight_map\": [\"a\"]}", "{\"metadata\": {}}"}) {
    write_index(text);
    EXPECT_THAT(refusal(folder()), HasSubstr("is not an index of weights")) << text;
  }
  write_index(R"({"weight_map": {"a": 3}})");
  EXPECT_THAT(refusal(folder()), HasSubstr("names no file for \"a\""));
  for (const char* name :
       {"../one.safetensors", "/etc/passwd", "", ".", "..", "x/one.safetensors", "one.safetensors/"}) {
    write_index(concat(R"({"weight_map": {"a": ")", name, R"("}})"));
    EXPECT_THAT(refusal(folder()), HasSubstr("which is not a file in the same folder")) << name;
  }
}

}  // namespace
}  // namespace sluice::storage
