// lexical: looks for characters that no TOML has outside of strings and comments, before the TOML library reads a text.
// toml++ 3.3 takes their absence for granted: "[|" or a non-ASCII letter in place of a value abort a debug build of it
// and are undefined behaviour in a release build. Not here: any other rule of TOML; those errors are the library's.
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

namespace sluice::config {

// Offset of the first such character, or of the one after the bracket of a table head when no key starts there.
[[nodiscard]] std::optional<std::size_t> misplaced_character(std::string_view text);

}  // namespace sluice::config
