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

// One value in TOML syntax, as after `key =`. Errors: ConfigError that begins with `where`.
[[nodiscard]] Value read_value(std::string_view text, std::string_view where);

}  // namespace sluice::config
