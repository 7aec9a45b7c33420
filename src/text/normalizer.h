// normalizer: the normalizers of `tokenizers`, which change text before it is split. Each byte of the result knows its
// characters of the original, as in `tokenizers`.
// A normalizer whose operations work on one code point at a time (BertNormalizer, mostly) is compiled into one table.
// Threads: any. Errors: DataError as Pattern::find_all() and AlignedText.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "text/aligned_text.h"
#include "text/pattern.h"
#include "text/sentencepiece.h"

namespace sluice::text {

// One step. A Sequence is a list of steps; BertNormalizer is up to five of them.
enum class PointStep {
  kClean,       // removes control characters, makes every space ' '
  kIsolateCjk,  // puts ' ' on both sides of each CJK character
  kStripNonspacing,
  kStripMarks,
  kLower,
  kNfd,
  kNfkd,
  kNfc,
  kNfkc,
};
struct ReplaceStep {
  std::shared_ptr<const Pattern> pattern;
  std::string content;
};
struct PrependStep {
  std::string content;
};
struct StripStep {
  bool left, right;
};
struct SentencePieceStep {
  std::shared_ptr<const SentencePieceNormalizer> normalizer;
};
using NormalizerStep = std::variant<PointStep, ReplaceStep, PrependStep, StripStep, SentencePieceStep>;

class Normalizer {
 public:
  Normalizer() = default;  // leaves text as it is
  explicit Normalizer(std::vector<NormalizerStep> steps);

  struct Scratch {
    AlignedText text, other;
    Pattern::Scratch pattern;
  };
  // Appends the normal form of `text`, whose first character is `first_char` of the original.
  void append(std::string_view text, std::uint32_t first_char, AlignedText& out, Scratch& scratch) const;

  [[nodiscard]] std::string normalized(std::string_view text) const;

 private:
  struct Table;  // what each code point becomes

  [[nodiscard]] bool append_by_table(std::string_view text, std::uint32_t first_char, AlignedText& out) const;
  void run_steps(std::uint32_t first_char, Scratch& scratch) const;

  std::vector<NormalizerStep> steps_;
  std::shared_ptr<const Table> table_;
};

}  // namespace sluice::text
