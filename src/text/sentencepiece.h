// sentencepiece: the model and the normalizer of SentencePiece's .model files (unigram and BPE), equal to PyPI's
// `sentencepiece` 0.2.3. Debian's libsentencepiece is not used, because its FLAGS_minloglevel and LibTorch's are one
// symbol of two types (docs/reference/tokenizers.md).
// Threads: any. Errors: DataError for a damaged file, also from run(); ConfigError for one that is not supported.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/aligned_text.h"
#include "text/model.h"

namespace sluice::text {

enum class PieceType { kNormal = 1, kUnknown = 2, kControl = 3, kUserDefined = 4, kUnused = 5, kByte = 6 };

struct SentencePieceFile {
  struct Piece {
    std::string text;
    float score = 0;
    PieceType type = PieceType::kNormal;
  };
  std::vector<Piece> pieces;  // [id]
  int model_type = 1;         // 1: unigram, 2: BPE
  bool has_byte_fallback = false;
  bool has_space_suffix = false;
  std::string unknown_surface = " \xe2\x81\x87 ";  // what decoding makes of the unknown token
  std::string charsmap;                            // compiled rules of the normalizer
  bool adds_prefix = true;
  bool removes_extra_spaces = true;
  bool escapes_spaces = true;
};
[[nodiscard]] SentencePieceFile parse_sentencepiece_file(std::string_view content, const std::string& where);

// Finds user-defined pieces, which the normalizer leaves as they are and BPE never splits.
class PrefixMatcher {
 public:
  explicit PrefixMatcher(const SentencePieceFile& file);
  [[nodiscard]] std::size_t match(std::string_view text) const;  // bytes of the longest piece at the front, or 0

 private:
  TokenMap pieces_;
  std::array<bool, 256> begins_{};
};

class SentencePieceNormalizer {
 public:
  SentencePieceNormalizer(const SentencePieceFile& file, const std::string& where);

  // in: unchanged text. The origin of a byte reaches to the origin of the next byte, as in `sentencepiece`.
  void run(const AlignedText& in, AlignedText& out) const;

 private:
  struct Prefix {
    std::string_view normal;
    std::size_t bytes;
  };
  [[nodiscard]] Prefix normalize_prefix(std::string_view text) const;
  [[nodiscard]] bool next_unit(std::size_t& node, unsigned char byte, std::uint32_t& unit) const;
  void append(std::string_view normal, CharRange from, AlignedText& out) const;
  void append_space(CharRange from, AlignedText& out) const;
  [[nodiscard]] std::size_t leading_spaces(std::string_view text) const;
  [[nodiscard]] std::uint32_t trim(std::uint32_t end, AlignedText& out) const;

  PrefixMatcher matcher_;
  std::vector<std::uint32_t> trie_;  // a double array, as darts-clone writes it
  std::string normal_;               // texts that end in '\0'
  bool adds_prefix_, removes_extra_spaces_, escapes_spaces_, has_space_suffix_;
};

[[nodiscard]] std::unique_ptr<Model> make_sentencepiece_model(const SentencePieceFile& file, const std::string& where);

}  // namespace sluice::text
