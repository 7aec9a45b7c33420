// lexical: a look over a text before the TOML library reads it, for what no configuration holds.
// toml++ 3.3 takes well-formed text for granted in places: "[|", "[0,}", "5-------Ne 1" or a letter outside of ASCII in
// place of a value abort a debug build of it and are undefined behaviour in a release build. (Found by
// tests/config/fuzz_config.cpp.) What passes here does not get it there. It is also stricter than TOML where no key
// needs more: no strings of several lines, no dates, no quoted parts in a dotted key.
// Not here: any other rule of TOML; those errors are the library's.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace sluice::config {

struct Complaint {
  std::size_t offset = 0;  // bytes from the begin of the text
  std::string what;
};

// The first thing in `text` that the library must not see.
[[nodiscard]] std::optional<Complaint> look_over(std::string_view text);

}  // namespace sluice::config
