// aligned_text: text that was changed, with the characters of the original that each byte stands for.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "text/utf8.h"

namespace sluice::text {

// Characters [begin, end) of the original text, counted in code points.
struct CharRange {
  std::uint32_t begin = 0;
  std::uint32_t end = 0;

  bool operator==(const CharRange&) const = default;
};

// Longest text of a tokenizer, and what it may become. The borders of pieces have 32 bits, and encoding takes 20 to 40
// bytes per byte.
inline constexpr std::size_t kMostTextBytes = std::size_t{256} << 20;
inline constexpr std::size_t kMostChangedBytes = std::size_t{1} << 30;

[[noreturn]] void reject_changed_text();  // DataError

// Throws DataError if it would become longer than kMostChangedBytes.
struct AlignedText {
  std::string bytes;              // UTF-8
  std::vector<CharRange> origin;  // [byte]

  void clear() {
    bytes.clear();
    origin.clear();
  }
  [[nodiscard]] std::size_t size() const { return bytes.size(); }

  void resize(std::size_t size) {
    check_size(size);
    bytes.resize(size);
    origin.resize(size);
  }
  void append(std::string_view text, CharRange from) {
    bytes.append(text);
    check_size(bytes.size());
    origin.resize(bytes.size(), from);
  }
  void append_byte(char byte, CharRange from) {
    check_size(bytes.size());
    bytes.push_back(byte);
    origin.push_back(from);
  }
  void append(char32_t point, CharRange from) {
    append_point(bytes, point);
    check_size(bytes.size());
    origin.resize(bytes.size(), from);
  }
  void append(const AlignedText& other, std::size_t begin, std::size_t end) {
    check_size(bytes.size() + end - begin);
    bytes.append(other.bytes, begin, end - begin);
    const auto first = other.origin.begin();
    origin.insert(origin.end(), first + static_cast<std::ptrdiff_t>(begin), first + static_cast<std::ptrdiff_t>(end));
  }
  // Appends unchanged text whose first character is `first_char` of the original. Returns the next character.
  std::uint32_t append_original(std::string_view text, std::uint32_t first_char) {
    std::size_t at = bytes.size();
    bytes.append(text);
    resize(bytes.size());
    CharRange range{first_char, first_char};
    for (const char byte : text) {
      if (begins_character(byte)) range = {range.end, range.end + 1};
      origin[at++] = range;
    }
    return range.end;
  }

 private:
  static void check_size(std::size_t size) {
    if (size > kMostChangedBytes) [[unlikely]]
      reject_changed_text();
  }
};

}  // namespace sluice::text
