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

TEST(Normalizer, MakesLongTextOfACharacter) {
  std::vector<NormalizerStep> steps(8, PointStep::kIsolateCjk);
  steps[0] = PointStep::kNfkd;
  const std::string spaces(7, ' ');
  std::string expected;
  for (const char* character : {"\xe6\xa0\xaa", "\xe5\xbc\x8f", "\xe4\xbc\x9a", "\xe7\xa4\xbe"}) {
    expected += spaces + character + spaces;
  }
  EXPECT_EQ(normalize(steps, "a\xe3\x8d\xbf").bytes, "a" + expected);  // U+337F: 4 characters, 68 bytes
  EXPECT_THAT(normalize(std::vector<NormalizerStep>(64, PointStep::kIsolateCjk), "\xe6\x97\xa5").bytes,
              testing::SizeIs(64 + 3 + 64));
}

TEST(AlignedText, RefusesToBecomeTooLong) {
  AlignedText text;
  EXPECT_THROW(text.resize(kMostChangedBytes + 1), DataError);
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
  EXPECT_THAT(split(BertSplit{}, " Hey, you!? "), ElementsAre("Hey", ",", "you", "!", "?"));
  EXPECT_THAT(split(WordSplit{}, "a_b $$ c!"), ElementsAre("a_b", "$$", "c", "!"));
  EXPECT_THAT(split(CharacterSplit{Property::kNumeric, Delimiter::kContiguous}, "a12b"), ElementsAre("a", "12", "b"));
  EXPECT_THAT(split(CharacterSplit{Property::kNumeric, Delimiter::kIsolated}, "a12"), ElementsAre("a", "1", "2"));
  EXPECT_THAT(split(CharacterSplit{Property::kSpace, Delimiter::kRemoved},
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
  for (const char* pattern : {"\\w", "\\h", "\\R", "[a&&b]", "[[:alpha:]]", "a{2}+", "{,3}", "(?<n>a)", "(?m:.)",
                              "\\p{Han}", "\\1", "(*SKIP)",
                              // With categories, the text has other code points than the pattern.
                              "[\\u1800-\\u18af]\\s", "\\p{L}|[\\u0980-\\u09ff]", "\\u2427\\d", "\\u09fa\\P{L}",
                              // Without case
                              "a(?i)b|c", "(?i:[\\p{Lu}a])", "(?i:[^\\P{L}])", "(?i:\xc3\x9f)", "(?i:[a-\\u00ff])",
                              "(?i:ss)", "(?i)a|F(i)", "(?i:s[t]a)", "(?i:f{2})"}) {
    EXPECT_THAT(pattern_refusal(pattern), testing::HasSubstr("which is not supported")) << pattern;
  }
  EXPECT_EQ(pattern_refusal("\\w"), "t.json: pre_tokenizer: the pattern \"\\w\" has \"\\w\", which is not supported");
  EXPECT_THAT(pattern_refusal("(a"), testing::HasSubstr("is damaged: missing closing parenthesis"));
  for (const char* pattern : {"(\n", "\n\\w"}) {
    EXPECT_THAT(pattern_refusal(pattern),
                testing::AllOf(testing::HasSubstr("?"), testing::Not(testing::HasSubstr("\n"))));
  }
}

TEST(Pattern, TakesThePatternsOfModels) {
  for (const char* pattern :
       {"(?i:'s)|[^\\r\\n\\p{L}]?\\p{^Lu}++|\\p{N}{1,3}|\\u00e9|\\s+(?!\\S)|(?<=a)b*?",
        "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+",
        "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| "
        "?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+",
        "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+(?i:'s|'t|'re|'ve|'m|"
        "'ll|'d)?|"
        "\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
        "[\\u4e00-\\u9fa5\\u3040-\\u309f]+|\\p{L}", "a|(?i)b|(?:(?i)c|d)e", "(?i:\\p{Lu}|[a-z]s+t)"}) {
    EXPECT_EQ(pattern_refusal(pattern), "") << pattern;
  }
}

std::vector<std::string> matches(std::string_view pattern, const std::string& text) {
  std::vector<std::string> found;
  Pattern::Scratch scratch;
  Pattern::regex(pattern, "t").for_each(text, scratch, [&](std::size_t begin, std::size_t end) {
    found.push_back(std::to_string(begin) + ":" + text.substr(begin, end - begin));
  });
  return found;
}

TEST(Pattern, ReadsRangesOfCodePoints) {
  const std::string shaking = "\xf0\x9f\xab\xa8";  // of Unicode 15
  EXPECT_THAT(matches("[\xf0\x9f\x8c\x80-\xf0\x9f\xab\xbf]+", "a" + shaking), ElementsAre("1:" + shaking));
  EXPECT_THAT(matches("[\\u1800-\\u18af]+", "a\xe1\xa0\x8e"), ElementsAre("1:\xe1\xa0\x8e"));
  EXPECT_THAT(matches("[\\u0980-\\u09ff]", "\xe2\x90\xa7"), ElementsAre());
}

TEST(Pattern, MatchesEmptyTextAsTokenizersDoes) {
  EXPECT_THAT(matches("x*", "axb"), ElementsAre("0:", "1:x", "3:"));
  EXPECT_THAT(matches("x*", ""), ElementsAre());
  EXPECT_THAT(matches("(?=\\p{Lu})|$",
                      "\xc3\x89"
                      "bA"),
              ElementsAre("0:", "3:", "4:"));
  EXPECT_EQ(normalize({ReplaceStep{std::make_shared<const Pattern>(Pattern::regex("x*", "t")), "-"}}, "axb").bytes,
            "-a-b-");
  EXPECT_THAT(split(PatternSplit{Pattern::regex("x*", "t"), Delimiter::kMergedWithNext, false}, "axbb"),
              ElementsAre("a", "xb", "b"));
}

TEST(Pattern, SaysThatATextTakesTooLong) {
  const Pattern pattern = Pattern::regex("(a+)+[bc]", "t");
  Pattern::Scratch scratch;
  try {
    pattern.find_all(std::string(1000, 'a'), scratch);
    FAIL() << "found a match";
  } catch (const DataError& error) {
    EXPECT_THAT(error.what(),
                testing::StartsWith("a pattern of the tokenizer cannot be matched in a text of 1000 bytes: "));
    EXPECT_THAT(error.what(), testing::EndsWith(" limit exceeded; split the text into shorter parts"));
  }
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
  EXPECT_EQ(decode_tokens({MetaspaceDecode{Pattern::literal("_"), true}}, Tokens{"_a", "_b"}), "a b");
}

}  // namespace
}  // namespace sluice::text
