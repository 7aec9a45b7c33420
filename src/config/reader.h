// reader: TOML text to a flat list of entries. The only place that sees the TOML library.
// Not here: which keys exist and what they may hold (schema.h).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "config/value.h"

namespace sluice::config {

// `table` alone: the head of a table. `leaf` alone: a value outside of any table.
struct Entry {
  std::string table;
  std::string leaf;
  Value value;
  int line = 0;  // from 1
};

// Entries in the order of the file. Errors: ConfigError "NAME:LINE:COLUMN: ...".
[[nodiscard]] std::vector<Entry> read_toml(std::string_view text, std::string_view name);

// The text with this value of `table.leaf`, in TOML syntax: in place of the value that is there, else as a new line at
// the end of the table. All else stays as it is, comments too. Errors: ConfigError as read_toml().
[[nodiscard]] std::string with_value(std::string_view text, std::string_view name, std::string_view table,
                                     std::string_view leaf, std::string_view value);

// One value in TOML syntax, as after `key =`. Errors: ConfigError that begins with `where`.
[[nodiscard]] Value read_value(std::string_view text, std::string_view where);

}  // namespace sluice::config
