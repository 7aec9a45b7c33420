// unicode: properties of code points, equal to those of PyPI's `tokenizers` 0.23.3 for every code point. `tokenizers`
// has tables of several Unicode versions; ours are ICU's, restricted by age, with the exceptions that
// tests/text/make_unicode_exceptions.py finds. See docs/reference/tokenizers.md.
// Threads: any; the tables are made on first use.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string_view>
#include <vector>

#include "text/unicode_exceptions.h"

namespace sluice::text {

// No code point from kFirstUnassigned to kEndOfUnassigned has any property.
inline constexpr char32_t kFirstUnassigned = 0x34000;
inline constexpr char32_t kEndOfUnassigned = 0xe0000;

// A value for each code point. Pages of equal content are stored once.
template <typename Value>
class PointTable {
 public:
  // Calls value_of(point) in the order of code points, but not for those that no version of Unicode assigns.
  template <typename ValueOf>
  explicit PointTable(ValueOf&& value_of) {
    std::map<std::vector<Value>, std::uint16_t> known;
    std::vector<Value> page(kPageSize);
    for (char32_t first = 0; first < 0x110000; first += kPageSize) {
      for (char32_t point = first; point < first + kPageSize; ++point) {
        page[point - first] = point >= kFirstUnassigned && point < kEndOfUnassigned ? Value{} : value_of(point);
      }
      const auto [at, is_new] = known.try_emplace(page, static_cast<std::uint16_t>(known.size()));
      if (is_new) values_.insert(values_.end(), page.begin(), page.end());
      page_of_[first / kPageSize] = at->second;
    }
  }

  [[nodiscard]] Value operator[](char32_t point) const {
    return values_[page_of_[point / kPageSize] * kPageSize + point % kPageSize];
  }

 private:
  static constexpr char32_t kPageSize = 256;
  std::array<std::uint16_t, 0x110000 / kPageSize> page_of_{};
  std::vector<Value> values_;
};

// kControl: removed by BertNormalizer. kPunctuation: with all of ASCII's. kNonspacing, kMark: removed as accents by
// BertNormalizer and by StripAccents. kWord: \w of Rust's regex.
[[nodiscard]] bool has_property(char32_t point, Property property);

[[nodiscard]] bool is_cjk(char32_t point);  // as BertNormalizer means it: no kana, no hangul

struct Points {
  std::array<char32_t, 18> points{};  // U+FDFA has the longest decomposition
  std::uint32_t count = 0;

  [[nodiscard]] const char32_t* begin() const { return points.data(); }
  [[nodiscard]] const char32_t* end() const { return points.data() + count; }
};
[[nodiscard]] Points lower(char32_t point);  // one or two code points

// Unicode 9.0. Full decomposition, in canonical order; the point itself if it has none.
[[nodiscard]] Points decompose(char32_t point, bool compatibly);
[[nodiscard]] std::uint8_t combining_class(char32_t point);
[[nodiscard]] char32_t compose(char32_t first, char32_t second);  // 0: they do not compose

// The code point, or if its category differs between Oniguruma and PCRE2 one that has Oniguruma's category in both and
// as many bytes.
[[nodiscard]] char32_t like_in_pcre2(char32_t point);
// Whether like_in_pcre2() takes no code point into the range or out of it.
[[nodiscard]] bool keeps_range_in_pcre2(char32_t first, char32_t last);

// The run of kSpace that ends at `end`, but not before `least`, and the one that begins at `begin`.
[[nodiscard]] std::size_t begin_of_spaces(std::string_view text, std::size_t end, std::size_t least = 0);
[[nodiscard]] std::size_t end_of_spaces(std::string_view text, std::size_t begin);

}  // namespace sluice::text
