// value: a TOML value as far as configuration uses them, free of any TOML library.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace sluice::config {

// A value that no key takes, such as a date or a table: what it is, for the message.
struct Foreign {
  std::string what;
};

using Value =
    std::variant<bool, std::int64_t, double, std::string, std::vector<std::int64_t>, std::vector<std::string>, Foreign>;

// TOML syntax that reads back as the same value.
[[nodiscard]] std::string to_text(const Value& value);

// "an integer", "an array of strings", ...
[[nodiscard]] std::string type_of(const Value& value);

// The text as it may stand in a one-line message: no control characters, not too long.
[[nodiscard]] std::string one_line(std::string_view text);

}  // namespace sluice::config
