// What is accepted, and what it becomes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "config/config.h"
#include "config/schema.h"
#include "core/error.h"
#include "pipeline/schedule/generators.h"
#include "ps/policy/stragglers.h"
#include "ps/policy/sync_policy.h"

namespace sluice::config {
namespace {

using ::testing::ElementsAre;

Config with(std::string_view text, const std::vector<std::string>& sets = {}) { return parse(text, "run.toml", sets); }

TEST(Parse, NothingGivenMeansTheDefaults) {
  EXPECT_EQ(with(""), Config{});
  EXPECT_EQ(with("# only a comment\n[train]\n"), Config{});
  EXPECT_NO_THROW(validate(Config{}));
}

TEST(Parse, ReadsEveryKindOfValue) {
  const Config config = with(
      "[device]\n"
      "list = [\"cpu:0\", \"cpu:0\", \"cuda:1\", \"cuda:1\"]\n"
      "[model]\n"
      "name = \"resnet18\"\n"
      "[train]\n"
      "lr = 1\n"
      "steps = 1_000\n"
      "lr_schedule = \"step\"\n"
      "lr_decay_steps = [300, 600]\n"
      "deterministic = true\n"
      "seed = 9223372036854775807\n"
      "[pipeline]\n"
      "stages = 2\n"
      "chunks = \"auto\"\n"
      "partition = [3, 4]\n"
      "[replicas]\n"
      "local = 2\n");
  EXPECT_THAT(config.device.list.names, ElementsAre("cpu:0", "cpu:0", "cuda:1", "cuda:1"));
  EXPECT_EQ(config.device.list.choice, "");
  EXPECT_EQ(config.model.name, "resnet18");
  EXPECT_EQ(config.train.lr, 1.0);
  EXPECT_EQ(config.train.steps, 1000);
  EXPECT_THAT(config.train.lr_decay_steps, ElementsAre(300, 600));
  EXPECT_TRUE(config.train.deterministic);
  EXPECT_EQ(config.train.seed, 9223372036854775807U);
  EXPECT_EQ(config.pipeline.chunks, std::nullopt);
  EXPECT_THAT(config.pipeline.partition.value(), ElementsAre(3, 4));
}

TEST(Parse, TablesMayBeWrittenAsDottedKeys) {
  const Config config = with("train.lr = 0.5\npipeline = { stages = 3 }\n");
  EXPECT_EQ(config.train.lr, 0.5);
  EXPECT_EQ(config.pipeline.stages, 3);
}

TEST(Set, OverridesTheFileAndTheLastOneWins) {
  const Config config = with("[train]\nlr = 0.5\nsteps = 3\n", {"train.lr=0.25", "train.lr=0.125"});
  EXPECT_EQ(config.train.lr, 0.125);
  EXPECT_EQ(config.train.steps, 3);
}

TEST(Set, TakesTomlAndBareWords) {
  const Config config = with("", {"train.optimizer=adamw", "device.list=cpu", "pipeline.stages=2",
                                  "pipeline.partition=[3,4]", "pipeline.chunks=auto", "train.deterministic=true",
                                  " train.eps = 1e-6 ", "data.name=\"cifar10\"", "model.weights=/tmp/a b.safetensors"});
  EXPECT_EQ(config.train.optimizer, "adamw");
  EXPECT_EQ(config.device.list.choice, "cpu");
  EXPECT_THAT(config.pipeline.partition.value(), ElementsAre(3, 4));
  EXPECT_EQ(config.pipeline.chunks, std::nullopt);
  EXPECT_TRUE(config.train.deterministic);
  EXPECT_EQ(config.train.eps, 1e-6);
  EXPECT_EQ(config.data.name, "cifar10");
  EXPECT_EQ(config.model.weights, "/tmp/a b.safetensors");
}

TEST(Parse, BytesMayHaveAUnit) {
  const auto limit_of = [](const std::string& text, const std::vector<std::string>& sets = {}) {
    return with(text.empty() ? "" : "[device]\nmemory_limit = " + text + "\n", sets).device.memory_limit.bytes;
  };
  EXPECT_EQ(limit_of(""), 0);
  EXPECT_EQ(limit_of("1_000"), 1000);
  EXPECT_EQ(limit_of("\"1.5 GiB\""), std::int64_t{3} << 29);
  EXPECT_EQ(limit_of("", {"device.memory_limit=512MiB"}), std::int64_t{512} << 20);
  EXPECT_EQ(limit_of("", {"device.memory_limit=\"2 GB\""}), 2'000'000'000);
  EXPECT_EQ(limit_of("5", {"device.memory_limit=0"}), 0);
}

TEST(Set, TextForAStringKeyStaysText) {
  const Config config = with("", {"data.path=2024", "model.name=true", "model.weights=a=b", "model.size="});
  EXPECT_EQ(config.data.path, "2024");
  EXPECT_EQ(config.model.name, "true");
  EXPECT_EQ(config.model.weights, "a=b");
  EXPECT_EQ(config.model.size, "");
}

TEST(Set, MayLeaveAutoAgain) {
  EXPECT_EQ(with("[pipeline]\nchunks = \"auto\"\n", {"pipeline.chunks=4"}).pipeline.chunks, 4);
  EXPECT_EQ(with("[pipeline]\npartition = [1]\n", {"pipeline.partition=auto"}).pipeline.partition, std::nullopt);
  EXPECT_EQ(with("[device]\nlist = [\"cpu:0\"]\n", {"device.list=auto"}).device.list, DeviceList{});
}

// What one key accepts may depend on another: the rules look at the whole, after the sets.
TEST(Set, MayRepairTheFile) {
  EXPECT_NO_THROW(with("[pipeline]\nstages = 3\npartition = [1, 2]\n", {"pipeline.stages=2"}));
}

TEST(Load, ReadsAFile) {
  const auto path = std::filesystem::temp_directory_path() / "sluice_config_load_test.toml";
  std::ofstream(path) << "[train]\nlr = 0.75\n";
  const std::vector<std::string> sets{"train.steps=7"};
  const Config config = load(path, sets);
  std::filesystem::remove(path);
  EXPECT_EQ(config.train.lr, 0.75);
  EXPECT_EQ(config.train.steps, 7);
}

TEST(Schema, KeysAreUniqueAndTheirDefaultsAllowed) {
  for (const auto& key : schema()) {
    EXPECT_EQ(find_key(key.name), &key) << key.name << " is there twice";
    EXPECT_FALSE(key.help.empty()) << key.name;
    EXPECT_NO_THROW(check_value(key, key.field.get(Config{}))) << key.name;
  }
}

TEST(Schema, OffersTheSchedulesThereAre) {
  const auto& words = std::get<Words>(find_key("pipeline.schedule")->limit);
  const auto names = pipeline::schedule_names();
  EXPECT_EQ(words, Words(names.begin(), names.end()));
}

TEST(Schema, OffersThePoliciesStragglersAndMergesThereAre) {
  const auto words = [](const char* key) { return std::get<Words>(find_key(key)->limit); };
  EXPECT_EQ(words("ps.policy"), ps::policy_names());
  EXPECT_EQ(words("ps.induce"), ps::straggler_names());
  EXPECT_EQ(words("ps.merge"), ps::merge_names());
  EXPECT_EQ(ps::merge_named("half"), ps::Merge::kHalf);
  EXPECT_EQ(ps::merge_named("besides"), ps::Merge::kBesides);
  EXPECT_EQ(ps::merge_named("mean"), ps::Merge::kMean);
  EXPECT_THROW((void)ps::merge_named("sum"), ConfigError);
}

}  // namespace
}  // namespace sluice::config
