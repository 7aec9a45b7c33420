#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.h"
#include "text/models.h"
#include "text/word_cache.h"

namespace sluice::text {
namespace {

using testing::ElementsAre;

Vocabulary vocabulary(const std::vector<std::string>& tokens) {
  Vocabulary result;
  for (std::size_t id = 0; id < tokens.size(); ++id) result.add(tokens[id], static_cast<std::int64_t>(id), "t");
  return result;
}

std::vector<WordToken> tokens(const Model& model, std::string_view word) {
  std::vector<WordToken> result;
  model.tokenize(word, result);
  return result;
}

TEST(WordPiece, TakesTheLongestToken) {
  const auto model =
      make_wordpiece(vocabulary({"[UNK]", "un", "##aff", "##able", "##a", "unaff", "\xc3\xa9"}), {}, "t");
  EXPECT_THAT(tokens(*model, "unaffable"), ElementsAre(WordToken{5, 5}, WordToken{3, 4}));
  EXPECT_THAT(tokens(*model, "una"), ElementsAre(WordToken{1, 2}, WordToken{4, 1}));
  EXPECT_THAT(tokens(*model, "unz"), ElementsAre(WordToken{0, 3}));
  EXPECT_THAT(tokens(*model, "\xc3\xa9"), ElementsAre(WordToken{6, 2}));
}

TEST(WordPiece, DoesNotKnowALongWord) {
  const auto model = make_wordpiece(vocabulary({"[UNK]", "a", "##a"}), {.longest_word = 3}, "t");
  EXPECT_THAT(tokens(*model, "aaa"), testing::SizeIs(3));
  EXPECT_THAT(tokens(*model, "aaaa"), ElementsAre(WordToken{0, 4}));
}

std::unique_ptr<Model> bpe(BpeOptions options) {
  return make_bpe(vocabulary({"a", "b", "c", "ab", "bc", "abc", "?", "<0xC3>", "<0xA9>"}),
                  {{"b", "c"}, {"a", "b"}, {"a", "bc"}}, options, BpeInput::kCharacters, "t");
}

TEST(Bpe, MergesTheEarliestPairFirst) {
  EXPECT_THAT(tokens(*bpe({}), "abc"), ElementsAre(WordToken{5, 3}));  // b+c, then a+bc
  EXPECT_THAT(tokens(*bpe({}), "abab"), ElementsAre(WordToken{3, 2}, WordToken{3, 2}));
  EXPECT_THAT(tokens(*bpe({}), ""), ElementsAre());
}

TEST(Bpe, TreatsUnknownCharactersAsAsked) {
  EXPECT_THAT(tokens(*bpe({}), "axb"), ElementsAre(WordToken{3, 2}));  // x is left out
  EXPECT_THAT(tokens(*bpe({.unknown = "?"}), "axyb"),
              ElementsAre(WordToken{0, 1}, WordToken{6, 1}, WordToken{6, 1}, WordToken{1, 1}));
  EXPECT_THAT(tokens(*bpe({.unknown = "?", .fuses_unknown = true}), "xya"),
              ElementsAre(WordToken{6, 2}, WordToken{0, 1}));
  EXPECT_THAT(tokens(*bpe({.falls_back_to_bytes = true}), "\xc3\xa9"), ElementsAre(WordToken{7, 1}, WordToken{8, 1}));
}

TEST(Bpe, KnowsWholeWordsAndAffixes) {
  const auto whole = make_bpe(vocabulary({"a", "b", "ab"}), {}, {.ignores_merges = true}, BpeInput::kCharacters, "t");
  EXPECT_THAT(tokens(*whole, "ab"), ElementsAre(WordToken{2, 2}));
  EXPECT_THAT(tokens(*whole, "aba"), ElementsAre(WordToken{0, 1}, WordToken{1, 1}, WordToken{0, 1}));
  const auto ended = make_bpe(vocabulary({"a", "b</w>", "ab</w>"}), {{"a", "b</w>"}}, {.word_end = "</w>"},
                              BpeInput::kCharacters, "t");
  EXPECT_THAT(tokens(*ended, "ab"), ElementsAre(WordToken{2, 2}));
}

TEST(Bpe, TakesLongWords) {
  const std::string word(100000, 'a');
  EXPECT_EQ(tokens(*bpe({}), word).size(), word.size());
}

TEST(WordCache, ForgetsAndStillAnswers) {
  const auto model = make_wordpiece(vocabulary({"[UNK]", "a"}), {}, "t");
  WordCache cache;
  for (std::size_t i = 0; i < 2 * WordCache::kMostWords; ++i) {
    ASSERT_THAT(cache.tokens_of("w" + std::to_string(i), *model), testing::SizeIs(1));
    ASSERT_EQ(cache.tokens_of("a", *model)[0], (WordToken{1, 1}));
  }
}

}  // namespace
}  // namespace sluice::text
