// assignment: "key = value" outside of a file: after --set, and in an entry of pipeline.changes. Internal to config/.
// Errors: ConfigError that begins with `where`.
#pragma once

#include <string>
#include <string_view>

#include "config/schema.h"

namespace sluice::config {

struct Assignment {
  std::string name;
  std::string value;
};
[[nodiscard]] Assignment split_assignment(std::string_view text, std::string_view where);

[[nodiscard]] std::string trimmed(std::string_view text);

// Converts `text` to the type of `key`. A string key takes any unquoted text; a bytes key takes any text that is not a
// plain number. For other keys, text that is not TOML but starts like a word ("auto", "cpu") is a string.
[[nodiscard]] Value assigned_value(const Key& key, const std::string& text, const std::string& where);

}  // namespace sluice::config
