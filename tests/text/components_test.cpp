#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.h"
#include "text/decoder.h"
#include "text/normalizer.h"
#include "text/pattern.h"
#include "text/pre_tokenizer.h"

namespace sluice::text {
namespace {

using testing::ElementsAre;

AlignedText normalize(const std::vector<NormalizerStep>& steps, std::string_view text) {
  AlignedText out;
  Normalizer::Scratch scratch;
  Normalizer(steps).append(text, 0, out, scratch);
  return out;
}

TEST(Normalizer, ChangesTextAndKeepsItsOrigin) {
  const AlignedText text = normalize(
      {PointStep::kClean, PointStep::kIsolateCjk, PointStep::kNfd, PointStep::kStripNonspacing, PointStep::kLower},
      "\xc3\x89\x01\t\xe6\x97\xa5");  // É, a control character, tab, 日
  EXPECT_EQ(text.bytes, "e  \xe6\x97\xa5 ");
  const CharRange cjk{3, 4};
  EXPECT_THAT(text.origin, ElementsAre(CharRange{0, 1}, CharRange{2, 3}, cjk, cjk, cjk, cjk, cjk));
}

TEST(Normalizer, SortsMarksThatItKeeps) {
  EXPECT_EQ(normalize({PointStep::kNfd}, "a\xcc\x81\xcc\xa3").bytes, "a\xcc\xa3\xcc\x81");
  EXPECT_EQ(normalize({PointStep::kNfc}, "a\xcc\x81\xcc\xa3").bytes, "\xe1\xba\xa1\xcc\x81");
  EXPECT_EQ(normalize({PointStep::kNfkc}, "\xef\xac\x81").bytes, "fi");
  EXPECT_THAT(normalize({PointStep::kNfc}, "e\xcc\x81x").origin,
              ElementsAre(CharRange{0, 1}, CharRange{0, 1}, CharRange{2, 3}));
}

TEST(Normalizer, StripsReplacesPrepends) {
  EXPECT_EQ(normalize({StripStep{true, false}},
                      " \xe3\x80\x80"
                      "a ")
                .bytes,
            "a ");
  EXPECT_EQ(normalize({StripStep{true, true}}, "   ").bytes, "");
  const auto spaces = std::make_shared<const Pattern>(Pattern::regex("\\s+", "t"));
  const AlignedText replaced = normalize({ReplaceStep{spaces, "__"}, PrependStep{"^"}}, "a  b");
  EXPECT_EQ(replaced.bytes, "^a__b");
  EXPECT_THAT(replaced.origin,
              ElementsAre(CharRange{0, 1}, CharRange{0, 1}, CharRange{2, 3}, CharRange{2, 3}, CharRange{3, 4}));
}

std::vector<std::string> split(const PreTokenizerStep& step, std::string_view text) {
  PreTokenized pieces;
  pieces.text.append_original(text, 0);
  pieces.pieces.push_back({0, static_cast<std::uint32_t>(text.size()), kNoToken});
  pre_tokenize({step}, pieces);
  std::vector<std::string> words;
  for (const Piece& piece : pieces.pieces) {
    words.push_back(pieces.text.bytes.substr(piece.begin, piece.end - piece.begin));
  }
  return words;
}

TEST(PreTokenizer, TreatsDelimitersAsAsked) {
  const auto by = [](Delimiter delimiter) {
    return split(PatternSplit{Pattern::literal("-"), delimiter, false}, "the-final--countdown");
  };
  EXPECT_THAT(by(Delimiter::kRemoved), ElementsAre("the", "final", "countdown"));
  EXPECT_THAT(by(Delimiter::kIsolated), ElementsAre("the", "-", "final", "-", "-", "countdown"));
  EXPECT_THAT(by(Delimiter::kMergedWithPrevious), ElementsAre("the-", "final-", "-", "countdown"));
  EXPECT_THAT(by(Delimiter::kMergedWithNext), ElementsAre("the", "-final", "-", "-countdown"));
  EXPECT_THAT(by(Delimiter::kContiguous), ElementsAre("the", "-", "final", "--", "countdown"));
  EXPECT_THAT(split(PatternSplit{Pattern::regex("\\p{L}+", "t"), Delimiter::kRemoved, true}, "a1bc"),
              ElementsAre("a", "bc"));
}

TEST(PreTokenizer, SplitsByKindOfCharacter) {
  using Kind = CharacterSplit::Kind;
  EXPECT_THAT(split(BertSplit{}, " Hey, you!? "), ElementsAre("Hey", ",", "you", "!", "?"));
  EXPECT_THAT(split(WordSplit{}, "a_b $$ c!"), ElementsAre("a_b", "$$", "c", "!"));
  EXPECT_THAT(split(CharacterSplit{Kind::kNumeric, Delimiter::kContiguous}, "a12b"), ElementsAre("a", "12", "b"));
  EXPECT_THAT(split(CharacterSplit{Kind::kNumeric, Delimiter::kIsolated}, "a12"), ElementsAre("a", "1", "2"));
  EXPECT_THAT(split(CharacterSplit{Kind::kSpace, Delimiter::kRemoved},
                    "a\xc2\xa0"
                    "b"),
              ElementsAre("a", "b"));
  const std::string mark = "\xe2\x96\x81";
  using Prepend = MetaspaceSplit::Prepend;
  EXPECT_THAT(split(MetaspaceSplit{Prepend::kAlways, mark, true}, "a  b"), ElementsAre(mark + "a", mark, mark + "b"));
  EXPECT_THAT(split(MetaspaceSplit{Prepend::kNever, mark, false}, "a b"), ElementsAre("a" + mark + "b"));
  EXPECT_THAT(split(ByteLevelPrefix{}, "a"), ElementsAre(" a"));
  EXPECT_THAT(split(ByteLevelMap{}, " \xc3\xa9"), ElementsAre("\xc4\xa0\xc3\x83\xc2\xa9"));
}

std::string pattern_refusal(std::string_view pattern) {
  try {
    (void)Pattern::regex(pattern, "t.json: pre_tokenizer");
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

TEST(Pattern, RefusesWhatRubyAndPcre2ReadDifferently) {
  for (const char* pattern :
       {"\\w", "\\h", "\\R", "[a&&b]", "[[:alpha:]]", "a{2}+", "{,3}", "(?<n>a)", "(?m:.)", "\\p{Han}", "\\1"}) {
    EXPECT_THAT(pattern_refusal(pattern), testing::HasSubstr("which is not supported")) << pattern;
  }
  EXPECT_EQ(pattern_refusal("\\w"), "t.json: pre_tokenizer: the pattern \"\\w\" has \"\\w\", which is not supported");
  EXPECT_THAT(pattern_refusal("(a"), testing::HasSubstr("is damaged: missing closing parenthesis"));
  EXPECT_EQ(pattern_refusal("(?i:'s)|[^\\r\\n\\p{L}]?\\p{^Lu}++|\\p{N}{1,3}|\\u00e9|\\s+(?!\\S)|(?<=a)b*?"), "");
}

TEST(Decoder, JoinsTokens) {
  using Tokens = std::vector<std::string>;
  EXPECT_EQ(decode_tokens({}, Tokens{"a", "b"}), "a b");
  EXPECT_EQ(decode_tokens({WordPieceDecode{"##", true}}, Tokens{"do", "n", "'", "t", "##s", "."}), "do n ' ts.");
  EXPECT_EQ(decode_tokens({ByteLevelDecode{}}, Tokens{"\xc4\xa0hi", "\xc3\x83"}), " hi\xef\xbf\xbd");
  const std::vector<DecoderStep> llama = {ReplaceDecode{Pattern::literal("\xe2\x96\x81"), " "}, ByteFallbackDecode{},
                                          FuseDecode{}, StripDecode{" ", 1, 0}};
  EXPECT_EQ(decode_tokens(llama, Tokens{"\xe2\x96\x81"
                                        "a",
                                        "<0xC3>", "<0xA9>", "<0xC3>", "b"}),
            "a\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"
            "b");
  EXPECT_EQ(decode_tokens(llama, Tokens{"<0xC3>", "<0xA9>"}), "\xc3\xa9");
  EXPECT_EQ(decode_tokens({MetaspaceDecode{"_", true}}, Tokens{"_a", "_b"}), "a b");
}

}  // namespace
}  // namespace sluice::text
