#include "text/utf8.h"

#include <algorithm>
#include <cstring>

namespace sluice::text {
namespace {

struct ByteRange {
  unsigned least, most;
};
// The second byte also excludes overlong forms, surrogates and points beyond U+10FFFF.
ByteRange second_bytes(unsigned first) {
  switch (first) {
    case 0xe0: return {0xa0, 0xbf};
    case 0xed: return {0x80, 0x9f};
    case 0xf0: return {0x90, 0xbf};
    case 0xf4: return {0x80, 0x8f};
    default: return {0x80, 0xbf};
  }
}

// Bytes of the valid character at the front of `text`, or 0. `broken`: bytes of the part to be replaced otherwise.
std::size_t valid_bytes(std::string_view text, std::size_t& broken) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned>(static_cast<unsigned char>(text[i])); };
  const unsigned first = byte(0);
  broken = 1;
  if (first < 0x80) return 1;
  if (first < 0xc2 || first > 0xf4) return 0;
  const std::size_t size = first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
  for (; broken < size; ++broken) {
    const ByteRange range = broken == 1 ? second_bytes(first) : ByteRange{0x80, 0xbf};
    if (broken == text.size() || byte(broken) < range.least || byte(broken) > range.most) return 0;
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
