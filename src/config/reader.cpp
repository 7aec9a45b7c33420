#include "config/reader.h"

#include <algorithm>
#include <tuple>

#define TOML_ENABLE_FORMATTERS 0
#include <toml++/toml.h>

#include "config/lexical.h"
#include "core/concat.h"
#include "core/error.h"
#include "core/text.h"

namespace sluice::config {
namespace {

Value array_value(const toml::array& array) {
  std::vector<std::int64_t> integers;
  std::vector<std::string> strings;
  for (const auto& node : array) {
    if (const auto* integer = node.as_integer()) integers.push_back(integer->get());
    if (const auto* string = node.as_string()) strings.push_back(string->get());
  }
  if (integers.size() == array.size()) return integers;
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

// "LINE:COLUMN", both from 1.
std::string position_of(std::string_view text, std::size_t offset) {
  const std::string_view before = text.substr(0, offset);
  const auto line_start = before.rfind('\n') + 1;  // npos + 1 = 0
  return concat(1 + std::ranges::count(before, '\n'), ":", 1 + offset - line_start);
}

toml::table parse_table(std::string_view text, std::string_view where, bool with_position) {
  if (const auto complaint = look_over(text)) {
    const std::string position = with_position ? concat(":", position_of(text, complaint->offset)) : "";
    throw ConfigError(where, position, ": not valid TOML: ", complaint->what);
  }
  try {
    return toml::parse(text, where);
  } catch (const toml::parse_error& error) {
    const auto begin = error.source().begin;
    const std::string position = with_position ? concat(":", begin.line, ":", begin.column) : "";
    throw ConfigError(where, position, ": not valid TOML: ", one_line(error.description()));
  }
}

// Converts a position to a byte offset. The library's columns count characters and skip a byte order mark.
std::size_t offset_of(std::string_view text, toml::source_position position) {
  constexpr unsigned char kContinuation = 0xc0, kContinues = 0x80;
  std::size_t at = text.starts_with(kByteOrderMark) ? kByteOrderMark.size() : 0;
  for (std::size_t line = 1; line < position.line; ++line) at = text.find('\n', at) + 1;
  const std::size_t before = position.column - 1;
  for (std::size_t characters = 0; characters < before && at < text.size(); ++characters) {
    ++at;
    while (at < text.size() && (static_cast<unsigned char>(text[at]) & kContinuation) == kContinues) ++at;
  }
  return at;
}

// Adds the key after the last one of the table, in the table's own form: below its head, in braces, or with a prefix.
std::string with_new_key(std::string_view text, const toml::table& table, std::string_view name, std::string_view leaf,
                         std::string_view value) {
  const std::string assigned = concat(leaf, " = ", value);
  const std::size_t begin = offset_of(text, table.source().begin);
  if (table.is_inline()) {
    const std::size_t brace = offset_of(text, table.source().end) - 1;
    const std::size_t after = text.find_last_not_of(" \t", brace - 1) + 1;
    return std::string(text).insert(after, table.empty() ? assigned : concat(", ", assigned));
  }
  std::size_t last = begin;
  for (const auto& [key, node] : table) last = std::max(last, offset_of(text, node.source().end));
  const std::size_t line_end = std::min(text.find_first_of("\r\n", last), text.size());
  const std::string_view line_break = text.substr(line_end).starts_with('\r') ? "\r\n" : "\n";
  const std::string prefix = text[begin] == '[' ? "" : concat(name, ".");
  return std::string(text).insert(line_end, concat(line_break, prefix, assigned));
}

}  // namespace

std::vector<Entry> read_toml(std::string_view text, std::string_view name) {
  const toml::table root = parse_table(text, name, true);
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
  std::ranges::sort(entries, {}, [](const Entry& entry) { return std::tie(entry.line, entry.table, entry.leaf); });
  return entries;
}

std::string with_value(std::string_view text, std::string_view name, std::string_view table, std::string_view leaf,
                       std::string_view value) {
  const toml::table root = parse_table(text, name, true);
  const toml::node* const found = root.get(table);
  if (found == nullptr || !found->is_table()) {
    const std::string_view gap = text.empty() ? "" : text.ends_with('\n') ? "\n" : "\n\n";
    return concat(text, gap, "[", table, "]\n", leaf, " = ", value, "\n");
  }
  const toml::table& of_leaf = *found->as_table();
  const toml::node* const old = of_leaf.get(leaf);
  if (old == nullptr) return with_new_key(text, of_leaf, table, leaf, value);
  const std::size_t begin = offset_of(text, old->source().begin), end = offset_of(text, old->source().end);
  return std::string(text).replace(begin, end - begin, value);
}

Value read_value(std::string_view text, std::string_view where) {
  const toml::table root = parse_table(concat("value = ", text), where, false);
  if (const auto* node = root.get("value"); node != nullptr && root.size() == 1) return value_of(*node);
  throw ConfigError(where, ": expected one TOML value");
}

}  // namespace sluice::config
