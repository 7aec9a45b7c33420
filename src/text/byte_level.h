// byte_level: names of bytes in vocabularies: GPT-2's printable characters (space is U+0120) of byte-level models, and
// the tokens <0x00> to <0xFF> of models with byte fallback.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "text/vocabulary.h"

namespace sluice::text {

[[nodiscard]] char32_t byte_character(std::uint8_t byte);
[[nodiscard]] std::optional<std::uint8_t> byte_of_character(char32_t point);

// Nothing if a character stands for no byte.
[[nodiscard]] std::optional<std::string> bytes_of_characters(std::string_view token);

[[nodiscard]] std::string byte_token(std::uint8_t byte);                          // 10: "<0x0A>"
[[nodiscard]] std::optional<std::uint8_t> byte_of_token(std::string_view token);  // of digits in any case
[[nodiscard]] bool has_all_bytes(const Vocabulary& vocabulary);

}  // namespace sluice::text
