#include "text/byte_level.h"

#include <array>
#include <charconv>

#include "text/utf8.h"

namespace sluice::text {
namespace {

constexpr bool stands_for_itself(unsigned byte) {
  return (byte >= '!' && byte <= '~') || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
}

constexpr std::array<char32_t, 256> kCharacters = [] {
  std::array<char32_t, 256> characters{};
  char32_t next = 256;
  for (unsigned byte = 0; byte < 256; ++byte) characters[byte] = stands_for_itself(byte) ? byte : next++;
  return characters;
}();

constexpr std::array<std::int16_t, 512> kBytes = [] {
  std::array<std::int16_t, 512> bytes{};
  for (auto& byte : bytes) byte = -1;
  for (unsigned byte = 0; byte < 256; ++byte) bytes[kCharacters[byte]] = static_cast<std::int16_t>(byte);
  return bytes;
}();

}  // namespace

char32_t byte_character(std::uint8_t byte) { return kCharacters[byte]; }

std::optional<std::uint8_t> byte_of_character(char32_t point) {
  if (point >= kBytes.size() || kBytes[point] < 0) return {};
  return static_cast<std::uint8_t>(kBytes[point]);
}

std::optional<std::string> bytes_of_characters(std::string_view token) {
  std::string bytes;
  for (const char* at = token.data(); at != token.data() + token.size();) {
    const auto byte = byte_of_character(next_point(at));
    if (!byte) return {};
    bytes.push_back(static_cast<char>(*byte));
  }
  return bytes;
}

std::string byte_token(std::uint8_t byte) {
  constexpr std::string_view kDigits = "0123456789ABCDEF";
  return {'<', '0', 'x', kDigits[byte >> 4], kDigits[byte & 15], '>'};
}

std::optional<std::uint8_t> byte_of_token(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token.back() != '>') return {};
  const bool has_sign = token[3] == '+';  // Rust takes it
  std::uint8_t byte = 0;
  const auto [end, error] = std::from_chars(token.data() + (has_sign ? 4 : 3), token.data() + 5, byte, 16);
  if (error != std::errc{} || end != token.data() + 5) return {};
  return byte;
}

bool has_all_bytes(const Vocabulary& vocabulary) {
  for (unsigned byte = 0; byte < 256; ++byte) {
    std::string character;
    append_point(character, byte_character(static_cast<std::uint8_t>(byte)));
    if (vocabulary.find(character) == kNoToken) return false;
  }
  return true;
}

}  // namespace sluice::text
