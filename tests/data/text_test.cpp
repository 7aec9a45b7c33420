#include "data/text.h"

#include <gmock/gmock.h>

#include <array>
#include <cmath>
#include <map>
#include <numeric>
#include <set>

#include "core/error.h"
#include "data/idx_files.h"
#include "data/loader.h"

namespace sluice::data {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;

std::vector<std::uint8_t> sample_of(const Dataset& dataset, std::int64_t index) {
  std::vector<std::uint8_t> tokens(static_cast<std::size_t>(dataset.info().sample_bytes()));
  dataset.read(index, tokens);
  return tokens;
}

// 100 bytes 0, 1, 2, ..., of which 90 are for training.
std::filesystem::path write_text(const TemporaryFolder& folder, std::size_t size = 100) {
  Bytes text(size);
  std::iota(text.begin(), text.end(), std::uint8_t{0});
  write_file(folder.path() / "text.bin", text);
  return folder.path() / "text.bin";
}

TEST(Text, IsCutIntoSequencesThatOverlapByTheTargetOfTheirLastToken) {
  const TemporaryFolder folder;
  const auto text = open_text(write_text(folder), 4, Split::kTrain);
  EXPECT_EQ(text->info().kind, SampleKind::kTokens);
  EXPECT_EQ(text->info().classes, 256);
  EXPECT_EQ(text->info().context, 4);
  EXPECT_EQ(text->size(), 22);  // 88 targets of 89 possible
  EXPECT_THAT(sample_of(*text, 0), ElementsAre(0, 1, 2, 3, 4));
  EXPECT_THAT(sample_of(*text, 1), ElementsAre(4, 5, 6, 7, 8));
  EXPECT_THAT(sample_of(*text, 21), ElementsAre(84, 85, 86, 87, 88));
  EXPECT_THROW(sample_of(*text, 22), BugError);
  EXPECT_THROW(static_cast<void>(text->target(0)), BugError);
}

TEST(Text, TheLastTenthIsForTesting) {
  const TemporaryFolder folder;
  const auto text = open_text(write_text(folder), 4, Split::kTest);
  EXPECT_EQ(text->size(), 2);
  EXPECT_THAT(sample_of(*text, 0), ElementsAre(90, 91, 92, 93, 94));
  EXPECT_THAT(sample_of(*text, 1), ElementsAre(94, 95, 96, 97, 98));
}

TEST(Text, WhatCannotBeCutSaysWhatToDo) {
  const TemporaryFolder folder;
  const auto opening = [](const std::filesystem::path& file, std::int64_t context) {
    return [=] { static_cast<void>(open_dataset({.name = "text", .path = file, .context = context}, Split::kTrain)); };
  };
  EXPECT_THAT(opening(write_text(folder), 10),
              ThrowsMessage<DataError>(HasSubstr("needs 110; set a smaller model.context")));
  EXPECT_THAT(opening(folder.path() / "none.txt", 10), ThrowsMessage<DataError>(HasSubstr("none.txt")));
  EXPECT_THAT(opening({}, 10), ThrowsMessage<ConfigError>(HasSubstr("data.path is empty")));
  EXPECT_THAT(opening(write_text(folder), 0), ThrowsMessage<ConfigError>(HasSubstr("model.context = 0")));
}

TEST(Toy, ASampleIsAFunctionOfSeedSplitAndIndex) {
  const auto train = make_toy({.samples = 50, .context = 20, .seed = 3}, Split::kTrain);
  const auto test = make_toy({.samples = 50, .context = 20, .seed = 3}, Split::kTest);
  EXPECT_EQ(train->size(), 50);
  EXPECT_EQ(test->size(), 10);
  EXPECT_EQ(sample_of(*train, 7), sample_of(*make_toy({.samples = 9, .context = 20, .seed = 3}, Split::kTrain), 7));
  EXPECT_NE(sample_of(*train, 7), sample_of(*train, 8));
  EXPECT_NE(sample_of(*train, 7), sample_of(*test, 7));
  EXPECT_NE(sample_of(*train, 7), sample_of(*make_toy({.context = 20, .seed = 4}, Split::kTrain), 7));
}

// In both splits, a token has four successors, with the entropy that text.h states.
TEST(Toy, IsOneMarkovChainOfTheStatedEntropy) {
  std::map<int, std::map<int, double>> counts;
  double transitions = 0;
  for (const Split split : {Split::kTrain, Split::kTest}) {
    const auto toy = make_toy({.samples = 1000, .context = 64}, split);
    for (std::int64_t i = 0; i < toy->size(); ++i) {
      const auto tokens = sample_of(*toy, i);
      for (std::size_t t = 1; t < tokens.size(); ++t) ++counts[tokens[t - 1]][tokens[t]], ++transitions;
    }
  }
  EXPECT_EQ(std::ssize(counts), kToyTokens);
  double entropy = 0;
  for (const auto& [token, successors] : counts) {
    EXPECT_EQ(successors.size(), 4U) << token;
    double all = 0;
    for (const auto& [next, count] : successors) all += count;
    for (const auto& [next, count] : successors) entropy -= count / transitions * std::log(count / all);
  }
  EXPECT_NEAR(entropy, kToyEntropy, 0.005);
}

TEST(TokenLoader, GivesTargetsOnePositionFurtherOnWhateverTheThreads) {
  const auto toy = make_toy({.samples = 10, .context = 6}, Split::kTrain);
  for (const int threads : {0, 2}) {
    Loader loader(*toy, {.batch_size = 4, .threads = threads, .endless = false, .shuffle = true, .dtype = at::kDouble});
    std::set<std::int64_t> seen;
    while (const auto batch = loader.next()) {
      ASSERT_EQ(batch->at("inputs").sizes(), batch->at("targets").sizes());
      EXPECT_EQ(batch->at("inputs").size(1), 6);
      EXPECT_EQ(batch->at("inputs").scalar_type(), at::kLong);
      for (std::int64_t i = 0; i < batch->at("inputs").size(0); ++i) {
        const auto id = batch->sample_ids[i].item<std::int64_t>();
        seen.insert(id);
        const auto tokens = sample_of(*toy, id);
        for (std::int64_t t = 0; t < 6; ++t) {
          EXPECT_EQ(batch->at("inputs")[i][t].item<std::int64_t>(), tokens[static_cast<std::size_t>(t)]);
          EXPECT_EQ(batch->at("targets")[i][t].item<std::int64_t>(), tokens[static_cast<std::size_t>(t + 1)]);
        }
      }
    }
    EXPECT_EQ(seen.size(), 10U);
  }
}

TEST(TokenLoader, RefusesWhatIsForImages) {
  const auto toy = make_toy({.samples = 10, .context = 6}, Split::kTrain);
  EXPECT_THAT([&] { const Loader loader(*toy, {.augment = {.horizontal_flip = true}}); },
              ThrowsMessage<ConfigError>(HasSubstr("data set toy has tokens")));
}

}  // namespace
}  // namespace sluice::data
