// value: a TOML value of a type that configuration uses, independent of the TOML library.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace sluice::config {

// A value that no key accepts, such as a date or a table; `what` describes it for messages.
struct Foreign {
  std::string what;
};

using Value =
    std::variant<bool, std::int64_t, double, std::string, std::vector<std::int64_t>, std::vector<std::string>, Foreign>;

[[nodiscard]] std::string to_text(const Value& value);

[[nodiscard]] std::string type_of(const Value& value);

// Without control characters, shortened if long.
[[nodiscard]] std::string one_line(std::string_view text);

}  // namespace sluice::config
