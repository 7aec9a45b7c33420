#include "config/assignment.h"

#include <algorithm>
#include <array>
#include <cctype>

#include "config/reader.h"
#include "core/error.h"

namespace sluice::config {
namespace {

// Uses the TOML reader, so that --set accepts only bytes that a file could hold.
Value checked_string(const std::string& text, const std::string& where) {
  return read_value(to_text(Value{text}), where);
}

}  // namespace

std::string trimmed(std::string_view text) {
  const auto begin = text.find_first_not_of(" \t");
  if (begin == std::string_view::npos) return {};
  return std::string(text.substr(begin, text.find_last_not_of(" \t") - begin + 1));
}

Assignment split_assignment(std::string_view text, std::string_view where) {
  const auto equals = text.find('=');
  if (equals == std::string_view::npos) throw ConfigError(where, ": expected key=value");
  return {trimmed(text.substr(0, equals)), trimmed(text.substr(equals + 1))};
}

Value assigned_value(const Key& key, const std::string& text, const std::string& where) {
  constexpr std::array<std::string_view, 4> kTomlWords{"true", "false", "inf", "nan"};
  const bool is_quoted = text.starts_with('"') || text.starts_with('\'');
  if (key.field.kind == Kind::kString && !is_quoted) return checked_string(text, where);
  const bool has_unit = key.field.kind == Kind::kBytes && text.find_first_not_of("+-0123456789_") != std::string::npos;
  if (has_unit && !is_quoted) return checked_string(text, where);
  if (text.empty()) throw ConfigError(where, ": no value after '='; ", need_text(key));
  const bool is_word = std::isalpha(static_cast<unsigned char>(text[0])) != 0;
  const bool is_toml = !is_word || std::ranges::find(kTomlWords, text) != kTomlWords.end();
  if (!is_toml) return checked_string(text, where);
  try {
    return read_value(text, where);
  } catch (const ConfigError& error) {
    throw ConfigError(error.what(), "; ", need_text(key));
  }
}

}  // namespace sluice::config
