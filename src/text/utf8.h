// utf8: reads and writes code points of valid UTF-8, and repairs invalid UTF-8.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace sluice::text {

inline constexpr char32_t kReplacementCharacter = 0xfffd;
inline constexpr std::string_view kSpaceSymbol = "\xe2\x96\x81";  // U+2581, a space in SentencePiece

// Returns the code point at `at` and moves `at` to its end. Requires: valid UTF-8, a character begins at `at`.
inline char32_t next_point(const char*& at) {
  const auto byte = [&](int i) { return static_cast<char32_t>(static_cast<unsigned char>(at[i])); };
  const char32_t first = byte(0);
  if (first < 0x80) return ++at, first;
  char32_t point = 0;
  if (first < 0xe0) {
    point = (first & 0x1f) << 6 | (byte(1) & 0x3f);
    at += 2;
  } else if (first < 0xf0) {
    point = (first & 0x0f) << 12 | (byte(1) & 0x3f) << 6 | (byte(2) & 0x3f);
    at += 3;
  } else {
    point = (first & 0x07) << 18 | (byte(1) & 0x3f) << 12 | (byte(2) & 0x3f) << 6 | (byte(3) & 0x3f);
    at += 4;
  }
  return point;
}

// Writes at most 4 bytes to `out`; returns the end.
inline char* write_point(char32_t point, char* out) {
  const auto put = [&](char32_t byte) { *out++ = static_cast<char>(byte); };
  if (point < 0x80) {
    put(point);
  } else if (point < 0x800) {
    put(0xc0 | point >> 6);
    put(0x80 | (point & 0x3f));
  } else if (point < 0x10000) {
    put(0xe0 | point >> 12);
    put(0x80 | (point >> 6 & 0x3f));
    put(0x80 | (point & 0x3f));
  } else {
    put(0xf0 | point >> 18);
    put(0x80 | (point >> 12 & 0x3f));
    put(0x80 | (point >> 6 & 0x3f));
    put(0x80 | (point & 0x3f));
  }
  return out;
}

inline void append_point(std::string& text, char32_t point) {
  char bytes[4];
  text.append(bytes, write_point(point, bytes));
}

// Requires: the text is not empty.
[[nodiscard]] inline std::size_t character_bytes(std::string_view text) {
  const char* at = text.data();
  next_point(at);
  return static_cast<std::size_t>(at - text.data());
}
[[nodiscard]] inline bool begins_character(char byte) { return (static_cast<unsigned char>(byte) & 0xc0) != 0x80; }
// Where the last character before `end` begins. Requires: end > 0.
[[nodiscard]] inline std::size_t last_character(std::string_view text, std::size_t end) {
  do --end;
  while (!begins_character(text[end]));
  return end;
}
[[nodiscard]] std::size_t count_points(std::string_view text);  // requires valid UTF-8

[[nodiscard]] bool is_ascii(std::string_view text);

// Returns `text` if it is valid UTF-8. Otherwise writes it to `repaired`, with U+FFFD for each maximal part of a
// character that is cut short or wrong (as Python's errors="replace" and Rust's from_utf8_lossy()), and returns that.
[[nodiscard]] std::string_view repair_utf8(std::string_view text, std::string& repaired);

}  // namespace sluice::text
