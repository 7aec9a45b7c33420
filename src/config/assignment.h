// assignment: "key = value" as it stands outside of a file: after --set, and in an entry of pipeline.changes.
// Internal to config/. Errors: ConfigError that begins with `where`.
#pragma once

#include <string>
#include <string_view>

#include "config/schema.h"

namespace sluice::config {

struct Assignment {
  std::string name;
  std::string value;  // without blanks around it
};
[[nodiscard]] Assignment split_assignment(std::string_view text, std::string_view where);

[[nodiscard]] std::string trimmed(std::string_view text);

// A key that holds a string takes any text without quotes as it is, one that holds bytes what is no plain number. For
// the others, text that is no TOML value but starts like a word ("auto", "cpu") counts as a string.
[[nodiscard]] Value assigned_value(const Key& key, const std::string& text, const std::string& where);

}  // namespace sluice::config
