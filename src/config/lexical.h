// lexical: looks for what TOML has nowhere outside of strings and comments, before the TOML library reads a text.
// toml++ 3.3 takes some of it for granted: "[|", "[0,}" or a letter outside of ASCII in place of a value abort a debug
// build of it and are undefined behaviour in a release build; so does such a letter in a string of several lines.
// TOML allows those strings; no key needs one, and none is accepted here.
// Not here: any other rule of TOML; those errors are the library's.
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

namespace sluice::config {

// Whether a string of several lines begins here.
[[nodiscard]] bool starts_many_lines(std::string_view text);

// Offset of the first such character or string, of a closing bracket that does not fit, or of what follows the bracket
// of a table head when no key starts there.
[[nodiscard]] std::optional<std::size_t> misplaced_character(std::string_view text);

}  // namespace sluice::config
