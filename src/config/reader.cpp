#include "config/reader.h"

#include <algorithm>

#define TOML_ENABLE_FORMATTERS 0
#include <toml++/toml.h>

#include "core/concat.h"
#include "core/error.h"

namespace sluice::config {
namespace {

Value array_value(const toml::array& array) {
  std::vector<std::int64_t> integers;
  std::vector<std::string> strings;
  for (const auto& node : array) {
    if (const auto* integer = node.as_integer()) integers.push_back(integer->get());
    if (const auto* string = node.as_string()) strings.push_back(string->get());
  }
  if (integers.size() == array.size()) return integers;  // also the empty array
  if (strings.size() == array.size()) return strings;
  return Foreign{array.is_array_of_tables() ? "an array of tables" : "an array of mixed or other values"};
}

Value value_of(const toml::node& node) {
  if (const auto* held = node.as_boolean()) return held->get();
  if (const auto* held = node.as_integer()) return held->get();
  if (const auto* held = node.as_floating_point()) return held->get();
  if (const auto* held = node.as_string()) return held->get();
  if (const auto* held = node.as_array()) return array_value(*held);
  return Foreign{node.is_table() ? "a table" : "a date or time"};
}

int line_of(const toml::key& key) { return static_cast<int>(key.source().begin.line); }

}  // namespace

std::vector<Entry> read_toml(std::string_view text, std::string_view name) {
  toml::table root;
  try {
    root = toml::parse(text, name);
  } catch (const toml::parse_error& error) {
    const auto place = error.source().begin;
    throw ConfigError(
        concat(name, ":", place.line, ":", place.column, ": not valid TOML: ", one_line(error.description())));
  }
  std::vector<Entry> entries;
  for (const auto& [key, node] : root) {
    const auto* table = node.as_table();
    if (table == nullptr) {
      entries.push_back({"", std::string(key.str()), value_of(node), line_of(key)});
      continue;
    }
    entries.push_back({std::string(key.str()), "", Foreign{"a table"}, line_of(key)});
    for (const auto& [leaf, value] : *table) {
      entries.push_back({std::string(key.str()), std::string(leaf.str()), value_of(value), line_of(leaf)});
    }
  }
  std::ranges::stable_sort(entries, {}, &Entry::line);
  return entries;
}

Value read_value(std::string_view text, std::string_view where) {
  try {
    const toml::table root = toml::parse(concat("value = ", text));
    if (const auto* node = root.get("value"); node != nullptr && root.size() == 1) return value_of(*node);
  } catch (const toml::parse_error& error) {
    throw ConfigError(concat(where, ": not a TOML value: ", one_line(error.description())));
  }
  throw ConfigError(concat(where, ": expected one TOML value"));
}

}  // namespace sluice::config
