#include "text/utf8.h"

#include <algorithm>
#include <cstring>

namespace sluice::text {
namespace {

// Bytes of the valid character at the front of `text`, or 0. `broken`: bytes of the part to be replaced otherwise.
std::size_t valid_bytes(std::string_view text, std::size_t& broken) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned first = byte(0);
  broken = 1;
  if (first < 0x80) return 1;
  if (first < 0xc2 || first > 0xf4) return 0;
  const std::size_t size = first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
  for (std::size_t i = 1; i < size; ++i) {
    if (i == text.size()) return 0;
    // The second byte also excludes overlong forms, surrogates and points beyond U+10FFFF.
    const unsigned least = i > 1 ? 0x80 : first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80;
    const unsigned most = i > 1 ? 0xbf : first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;
    if (byte(i) < least || byte(i) > most) return 0;
    broken = i + 1;
  }
  return size;
}

}  // namespace

std::size_t count_points(std::string_view text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), begins_character));
}

bool is_ascii(std::string_view text) {
  std::size_t i = 0;
  for (; i + 8 <= text.size(); i += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, text.data() + i, 8);
    if ((word & 0x8080808080808080U) != 0) return false;
  }
  return std::all_of(text.begin() + static_cast<std::ptrdiff_t>(i), text.end(), [](char c) { return (c & 0x80) == 0; });
}

std::string_view repair_utf8(std::string_view text, std::string& repaired) {
  if (is_ascii(text)) return text;
  std::size_t copied = 0;
  repaired.clear();
  for (std::size_t i = 0, broken = 0; i < text.size();) {
    if (const std::size_t size = valid_bytes(text.substr(i), broken)) {
      i += size;
      continue;
    }
    repaired.append(text, copied, i - copied);
    append_point(repaired, kReplacementCharacter);
    copied = i += broken;
  }
  if (copied == 0) return text;
  repaired.append(text, copied);
  return repaired;
}

}  // namespace sluice::text
