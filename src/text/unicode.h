// unicode: properties of code points, equal to those of PyPI's `tokenizers` 0.23.3 for every code point. `tokenizers`
// has tables of several Unicode versions; ours are ICU's, restricted by age, with the exceptions that
// tests/text/make_unicode_exceptions.py finds. See docs/reference/tokenizers.md.
// Threads: any; the tables are made on first use.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "text/unicode_exceptions.h"

namespace sluice::text {

// No code point from kFirstUnassigned to kEndOfUnassigned has any property.
inline constexpr char32_t kFirstUnassigned = 0x34000;
inline constexpr char32_t kEndOfUnassigned = 0xe0000;

// kControl: removed by BertNormalizer. kPunctuation: with all of ASCII's. kNonspacing, kMark: removed as accents by
// BertNormalizer and by StripAccents. kWord: \w of Rust's regex.
[[nodiscard]] bool has_property(char32_t point, Property property);

[[nodiscard]] bool is_cjk(char32_t point);  // as BertNormalizer means it: no kana, no hangul

// Lower case of one code point: one or two code points.
struct Points {
  std::array<char32_t, 18> points{};  // U+FDFA has the longest decomposition
  std::uint32_t count = 0;

  [[nodiscard]] const char32_t* begin() const { return points.data(); }
  [[nodiscard]] const char32_t* end() const { return points.data() + count; }
};
[[nodiscard]] Points lower(char32_t point);

// Unicode 9.0. Full decomposition, in canonical order; the point itself if it has none.
[[nodiscard]] Points decompose(char32_t point, bool compatibly);
[[nodiscard]] std::uint8_t combining_class(char32_t point);
[[nodiscard]] char32_t compose(char32_t first, char32_t second);  // 0: they do not compose

// A code point for which PCRE2's tables say what Oniguruma's say about `point`, of as many bytes; mostly `point`.
[[nodiscard]] char32_t like_in_pcre2(char32_t point);

}  // namespace sluice::text
