// lexical: rejects text that crashes the TOML library, before the library reads it. toml++ 3.3 assumes well-formed text
// in places. For example "[|", "[0,}", "5-------Ne 1" or a non-ASCII letter as a value abort its debug build and are
// undefined behaviour in a release build. tests/config/fuzz_config.cpp found them.
// Also rejects TOML that no key needs: multi-line strings, dates, quoted parts in a dotted key. The library reports all
// other errors.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace sluice::config {

struct Complaint {
  std::size_t offset = 0;
  std::string what;
};

// Returns the first thing in `text` that the library must not see.
[[nodiscard]] std::optional<Complaint> look_over(std::string_view text);

}  // namespace sluice::config
