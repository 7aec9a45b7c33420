// reader: reads TOML text into a flat list of entries. Only reader.cpp uses the TOML library.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "config/value.h"

namespace sluice::config {

// If only `table` is set, the entry is a table head. If only `leaf` is set, the value is outside of any table.
struct Entry {
  std::string table;
  std::string leaf;
  Value value;
  int line = 0;
};

// Entries in file order. Errors: ConfigError "NAME:LINE:COLUMN: ...".
[[nodiscard]] std::vector<Entry> read_toml(std::string_view text, std::string_view name);

// Returns the text with `value` (TOML syntax) for `table.leaf`: replaces the existing value, or adds a line at the end
// of the table. Everything else stays, comments included. Errors: as read_toml().
[[nodiscard]] std::string with_value(std::string_view text, std::string_view name, std::string_view table,
                                     std::string_view leaf, std::string_view value);

// Reads one value in TOML syntax, as after `key =`. Errors: ConfigError that begins with `where`.
[[nodiscard]] Value read_value(std::string_view text, std::string_view where);

}  // namespace sluice::config
