#include "text/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <malloc.h>

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

TEST(Tokenizer, GivesSpacesToBothTokens) {
  for (const char* is_normalized : {"false", "true"}) {
    const auto added = [&](const char* id_and_content, const char* strips_right) {
      return std::string(R"({"single_word": false, "lstrip": false, "special": false, "id": )") + id_and_content +
             R"(, "normalized": )" + is_normalized + R"(, "rstrip": )" + strips_right + "}";
    };
    const Tokenizer tokenizer =
        parsed(tokenizer_json("\"added_tokens\": [" + added("8, \"content\": \"a\"", "true") + ", " +
                              added("11, \"content\": \" \"", "false") + "], " + std::string(kWordPiece)));
    const Encoding encoding = tokenizer.encode("ba  b");  // as `tokenizers`: "a" has the spaces, and each is a token
    EXPECT_THAT(encoding.ids, ElementsAre(10, 8, 11, 11, 10));
    EXPECT_THAT(encoding.offsets,
                ElementsAre(CharRange{0, 1}, CharRange{1, 4}, CharRange{2, 3}, CharRange{3, 4}, CharRange{4, 5}));
  }
}

TEST(Tokenizer, ReadsModelsWithoutAType) {
  std::string json = bert_json();
  json.erase(json.find(R"("type": "WordPiece", "unk)"), std::string_view(R"("type": "WordPiece", )").size());
  EXPECT_EQ(parsed(json).encode("unable, hello"), parsed(bert_json()).encode("unable, hello"));
  const Tokenizer bpe = parsed(tokenizer_json(R"("model": {"vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["a b"]})"));
  EXPECT_THAT(bpe.encode("aba").ids, ElementsAre(2, 0));
}

TEST(Tokenizer, RefusesATextThatIsTooLong) {
  const std::string_view text("a", kMostTextBytes + 1);  // of which no byte is read
  EXPECT_THROW((void)parsed(bert_json()).encode(text), DataError);
}

TEST(Tokenizer, FreesTheMemoryOfALongText) {
  const Tokenizer tokenizer = parsed(bert_json());
  const std::string text(std::size_t{17} << 20, 'a');
  (void)tokenizer.encode("a");
  const std::size_t before = mallinfo2().hblkhd;
  EXPECT_THAT(tokenizer.encode(text).ids, ElementsAre(1, 0, 2));
  EXPECT_LE(mallinfo2().hblkhd, before + (std::size_t{32} << 20));
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
  std::ofstream(folder / "vocab.txt") << "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nhello\r\n##s \n";
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
