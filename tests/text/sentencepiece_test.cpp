#include "text/sentencepiece.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <protozero/pbf_writer.hpp>

#include "core/error.h"
#include "text/byte_level.h"
#include "text/tokenizer.h"

namespace sluice::text {
namespace {

using testing::ElementsAre;

const std::string kSpace = "\xe2\x96\x81";

struct FileOptions {
  int model_type = 1;
  bool byte_fallback = false;
  bool removes_extra_spaces = true;
  bool adds_prefix = true;
  std::string charsmap;
  std::string denormalizer;  // its charsmap
  std::string unknown_surface;
};

std::string model_file(const std::vector<SentencePieceFile::Piece>& pieces, const FileOptions& options = {}) {
  std::string file;
  protozero::pbf_writer writer(file);
  for (const auto& piece : pieces) {
    protozero::pbf_writer message(writer, 1);
    message.add_string(1, piece.text);
    message.add_float(2, piece.score);
    message.add_enum(3, static_cast<int>(piece.type));
  }
  {
    protozero::pbf_writer trainer(writer, 2);
    trainer.add_enum(3, options.model_type);
    trainer.add_bool(35, options.byte_fallback);
    if (!options.unknown_surface.empty()) trainer.add_string(44, options.unknown_surface);
  }
  {
    protozero::pbf_writer normalizer(writer, 3);
    normalizer.add_bytes(2, options.charsmap);
    normalizer.add_bool(3, options.adds_prefix);
    normalizer.add_bool(4, options.removes_extra_spaces);
  }
  protozero::pbf_writer denormalizer(writer, 5);
  denormalizer.add_bytes(2, options.denormalizer);
  return file;
}

std::vector<SentencePieceFile::Piece> pieces() {
  return {{"<unk>", 0, PieceType::kUnknown},
          {"<s>", 0, PieceType::kControl},
          {kSpace, -2},
          {kSpace + "a", -3},
          {"a", -4},
          {"b", -4},
          {"ab", -5.5},
          {kSpace + "ab", -9},
          {"aba", -6, PieceType::kUserDefined}};
}

Tokenizer tokenizer(const FileOptions& options = {}) {
  return Tokenizer(parse_sentencepiece(model_file(pieces(), options), "t.model"));
}

TEST(SentencePiece, UnigramTakesTheMostProbablePieces) {
  const Encoding encoding = tokenizer().encode("  ab  b ");
  EXPECT_THAT(encoding.ids, ElementsAre(3, 5, 2, 5));  // -3 - 4 is more than -2 - 5.5 and than -9
  EXPECT_THAT(encoding.offsets, ElementsAre(CharRange{2, 3}, CharRange{3, 4}, CharRange{4, 6}, CharRange{6, 7}));
  EXPECT_EQ(tokenizer().decode(encoding.ids), "ab b");
}

TEST(SentencePiece, JoinsUnknownCharacters) {
  const Encoding encoding = tokenizer().encode("axyb");
  EXPECT_THAT(encoding.ids, ElementsAre(3, 0, 5));
  EXPECT_EQ(encoding.offsets[1], (CharRange{1, 3}));
  EXPECT_EQ(tokenizer().decode(encoding.ids), "a \xe2\x81\x87 b");
}

TEST(SentencePiece, BpeMergesByScore) {
  EXPECT_THAT(tokenizer({.model_type = 2}).encode("ab bab").ids, ElementsAre(7, 2, 5, 6));
  EXPECT_THAT(tokenizer({.model_type = 2}).encode("baba").ids,
              ElementsAre(2, 5, 8));  // user-defined pieces are never split
}

TEST(SentencePiece, KeepsSpacesIfAsked) {
  EXPECT_THAT(tokenizer({.removes_extra_spaces = false}).encode(" b").ids, ElementsAre(2, 2, 5));
  EXPECT_EQ(tokenizer({.removes_extra_spaces = false}).decode(std::vector<TokenId>{2, 2, 5}), " b");
}

TEST(SentencePiece, SpecialTokensAreNotInTheText) {
  EXPECT_THAT(tokenizer().encode("<s>").ids, ElementsAre(2, 0));
  EXPECT_EQ(tokenizer().find("<s>"), 1);
  EXPECT_EQ(tokenizer().decode(std::vector<TokenId>{1, 3}), "a");
}

std::string model_refusal(const std::string& content) {
  try {
    (void)parse_sentencepiece(content, "t.model");
  } catch (const Error& error) {
    return error.what();
  }
  return "was taken";
}

TEST(SentencePiece, RefusesDamagedFiles) {
  const std::string whole = model_file(pieces());
  EXPECT_EQ(model_refusal(""), "t.model: is not a SentencePiece model: it has no pieces");
  EXPECT_THAT(model_refusal(whole.substr(0, 15)), testing::StartsWith("t.model: is not a whole SentencePiece model: "));
  EXPECT_EQ(model_refusal(model_file(pieces(), {.model_type = 3})),
            "t.model: the model type \"word\" is not supported, only unigram and bpe");
  EXPECT_EQ(model_refusal(model_file({{"a", 0}})), "t.model: has 0 unknown pieces, expected one");
  EXPECT_EQ(model_refusal(model_file({{"<unk>", 0, PieceType::kUnknown}, {"a", 0}, {"a", 0}})),
            "t.model: token \"a\" comes twice, with the ids 1 and 2");
  EXPECT_EQ(model_refusal(model_file({{"a\xff", 0}})), "t.model: the piece \"a\xff\" is damaged");
  EXPECT_EQ(model_refusal(model_file(pieces(), {.denormalizer = "x"})),
            "t.model: rules to denormalize (denormalizer_spec) are not supported");
}

std::vector<SentencePieceFile::Piece> with_bytes(int count) {
  auto made = pieces();
  for (int byte = 0; byte < count; ++byte) {
    made.push_back({byte_token(static_cast<std::uint8_t>(byte)), 0, PieceType::kByte});
  }
  return made;
}

TEST(SentencePiece, FallsBackToBytes) {
  const Tokenizer tokenizer(parse_sentencepiece(model_file(with_bytes(256), {.byte_fallback = true}), "t.model"));
  const Encoding encoding = tokenizer.encode("a\xc3\xa9");
  EXPECT_THAT(encoding.ids, ElementsAre(3, 9 + 0xc3, 9 + 0xa9));
  EXPECT_EQ(tokenizer.decode(encoding.ids), "a\xc3\xa9");
}

TEST(SentencePiece, RefusesBytePiecesThatDoNotFit) {
  EXPECT_EQ(model_refusal(model_file(with_bytes(255), {.byte_fallback = true})),
            "t.model: has 255 byte pieces, expected 256 with byte_fallback");
  EXPECT_EQ(model_refusal(model_file(with_bytes(256))),
            "t.model: has 256 byte pieces, expected 0 without byte_fallback");
  auto named = pieces();
  named.push_back({"<0x41>", 0});
  EXPECT_EQ(model_refusal(model_file(named)), "t.model: the piece \"<0x41>\" names a byte, but is of another type");
  named.back() = {"<0x4b>", 0, PieceType::kByte};
  EXPECT_EQ(model_refusal(model_file(named)), "t.model: the piece \"<0x4b>\" is of type byte, but names none");
  EXPECT_EQ(model_refusal(model_file(pieces(), {.unknown_surface = "<0x41>"})),
            "t.model: the surface of its unknown piece is the name of a byte");
}

// Rules that replace the byte `from` by the text at `to` of `normal`.
std::string charsmap(unsigned char from, std::uint32_t to, const std::string& normal) {
  std::vector<std::uint32_t> trie(256);
  trie[from] = from | 1U << 8 | 1U << 10;
  trie[from ^ 1U] = 1U << 31 | to;
  const auto bytes = static_cast<std::uint32_t>(4 * trie.size());
  std::string map(reinterpret_cast<const char*>(&bytes), sizeof bytes);
  return map.append(reinterpret_cast<const char*>(trie.data()), bytes).append(normal).append(1, '\0');
}

TEST(SentencePiece, RefusesRulesThatCutCharacters) {
  for (const int model_type : {1, 2}) {
    const auto with = [&](const std::string& map) {
      return tokenizer({.model_type = model_type, .adds_prefix = false, .charsmap = map});
    };
    EXPECT_THAT(with(charsmap('x', 0, "ab\xc3\xa9")).encode("xy").offsets, testing::SizeIs(2));
    EXPECT_THROW((void)with(charsmap('x', 3, "ab\xc3\xa9")).encode("x"), DataError);
    EXPECT_THROW((void)with(charsmap('x', 99, "ab")).encode("x"), DataError);
    EXPECT_THROW((void)with(charsmap(0xc3, 0, "ab")).encode("\xc3\xa9"), DataError);
  }
}

}  // namespace
}  // namespace sluice::text
