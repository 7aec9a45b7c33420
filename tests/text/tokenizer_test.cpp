#include "text/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <thread>

#include "core/error.h"
#include "small_tokenizers.h"

namespace sluice::text {
namespace {

using testing::ElementsAre;

TEST(Tokenizer, EncodesAndDecodes) {
  const Tokenizer tokenizer = parsed(bert_json());
  const Encoding encoding = tokenizer.encode(
      "Un\xc3\xa4"
      "ff\xc3\xa4"
      "ble, hello");
  EXPECT_THAT(encoding.ids, ElementsAre(1, 3, 4, 5, 7, 6, 2));
  EXPECT_THAT(encoding.offsets, ElementsAre(CharRange{0, 0}, CharRange{0, 2}, CharRange{2, 5}, CharRange{5, 9},
                                            CharRange{9, 10}, CharRange{11, 16}, CharRange{0, 0}));
  EXPECT_EQ(tokenizer.decode(encoding.ids), "unaffable, hello");
  EXPECT_EQ(tokenizer.decode(encoding.ids, false), "[CLS] unaffable, hello [SEP]");
  EXPECT_THAT(tokenizer.encode("hello", "a").ids, ElementsAre(1, 6, 2, 8, 2));
  EXPECT_THAT(tokenizer.encode("").ids, ElementsAre(1, 2));
  EXPECT_THAT(tokenizer.encode("", {}, false).ids, ElementsAre());
}

TEST(Tokenizer, FindsAddedTokens) {
  const Tokenizer tokenizer = parsed(bert_json());
  // [SEP] takes the spaces before it; "ab" is found in lower case, but not within a word.
  const Encoding encoding = tokenizer.encode("AB  [SEP]b abb", {}, false);
  EXPECT_THAT(encoding.ids, ElementsAre(11, 2, 10, 8, 9, 9));
  EXPECT_THAT(encoding.offsets, ElementsAre(CharRange{0, 2}, CharRange{2, 9}, CharRange{9, 10}, CharRange{11, 12},
                                            CharRange{12, 13}, CharRange{13, 14}));
  EXPECT_THAT(encoding.special_tokens_mask, testing::Each(0));
}

TEST(Tokenizer, KnowsItsTokens) {
  const Tokenizer tokenizer = parsed(bert_json());
  EXPECT_EQ(tokenizer.find("ab"), 11);
  EXPECT_EQ(tokenizer.find("##aff"), 4);
  EXPECT_EQ(tokenizer.find("none"), kNoToken);
  EXPECT_EQ(tokenizer.token(11), "ab");
  EXPECT_EQ(tokenizer.token(12), std::nullopt);
  EXPECT_EQ(tokenizer.end_id(), 12);
  EXPECT_EQ(tokenizer.special_tokens(true), 3U);
}

TEST(Tokenizer, ReadsInvalidUtf8AsReplacementCharacters) {
  const Tokenizer tokenizer = parsed(bert_json());
  const Encoding encoding = tokenizer.encode("a\xff\xe6\x97 b", {}, false);  // U+FFFD is removed
  EXPECT_THAT(encoding.ids, ElementsAre(8, 10));
  EXPECT_THAT(encoding.offsets, ElementsAre(CharRange{0, 1}, CharRange{4, 5}));
}

TEST(Tokenizer, IsSharedByThreads) {
  const Tokenizer tokenizer = parsed(bert_json());
  const Tokenizer other = parsed(tokenizer_json(kWordPiece));
  const Encoding expected = tokenizer.encode("unaffable hello, a b");
  std::vector<std::thread> threads;
  std::atomic<int> wrong = 0;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int k = 0; k < 200; ++k) {
        if (other.encode("hello").ids != std::vector<TokenId>{6}) ++wrong;
        if (!(tokenizer.encode("unaffable hello, a b") == expected)) ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

TEST(Tokenizer, OpensFilesByName) {
  const auto folder = std::filesystem::path(testing::TempDir());
  std::ofstream(folder / "vocab.txt") << "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nhello\r\n##s\n";
  const auto uncased = open_tokenizer(folder / "vocab.txt");
  EXPECT_THAT(uncased->encode("H\xc3\x89llos [MASK]").ids, ElementsAre(2, 5, 6, 4, 3));
  std::ofstream(folder / "cased.txt") << "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nHello\nhello\n";
  EXPECT_THAT(open_tokenizer(folder / "cased.txt")->encode("Hello hello HELLO").ids, ElementsAre(2, 5, 6, 1, 3));
  std::ofstream(folder / "t.json") << bert_json();
  EXPECT_THAT(open_tokenizer(folder / "t.json")->encode("hello").ids, ElementsAre(1, 6, 2));
  EXPECT_THROW((void)open_tokenizer(folder / "missing.json"), DataError);
  EXPECT_THROW((void)open_tokenizer(folder / "merges.bpe"), ConfigError);
}

}  // namespace
}  // namespace sluice::text
