// byte_level: GPT-2's way to write bytes as printable characters (space is U+0120), used by byte-level vocabularies.
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

[[nodiscard]] bool has_all_bytes(const Vocabulary& vocabulary);

}  // namespace sluice::text
