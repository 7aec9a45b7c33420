#include "config/value.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "core/concat.h"

namespace sluice::config {
namespace {

bool is_control(unsigned char c) { return c < 0x20 || c == 0x7f; }

std::string text_of(bool value) { return value ? "true" : "false"; }

std::string text_of(std::int64_t value) { return std::to_string(value); }

// Returns the shortest text that reads back as the same number. TOML requires a point or an exponent.
std::string text_of(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  std::array<char, 32> buffer{};
  const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value).ptr;
  std::string text(buffer.data(), end);
  return text.find_first_of(".e") == std::string::npos ? text + ".0" : text;
}

std::string text_of(const std::string& value) {
  constexpr std::string_view kHex = "0123456789ABCDEF";
  std::string text = "\"";
  for (const char c : value) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      text += {'\\', c};
    } else if (is_control(byte)) {
      text += concat("\\u00", kHex[byte / 16], kHex[byte % 16]);
    } else {
      text += c;
    }
  }
  return text + '"';
}

template <typename Item>
std::string text_of(const std::vector<Item>& items) {
  std::string text;
  for (const auto& item : items) text += (text.empty() ? "" : ", ") + text_of(item);
  return concat("[", text, "]");
}

std::string text_of(const Foreign& value) { return value.what; }

}  // namespace

std::string to_text(const Value& value) {
  return std::visit([](const auto& held) { return text_of(held); }, value);
}

std::string type_of(const Value& value) {
  constexpr std::array kNames{"true or false", "an integer",           "a number",
                              "a string",      "an array of integers", "an array of strings"};
  if (const auto* foreign = std::get_if<Foreign>(&value)) return foreign->what;
  return kNames.at(value.index());
}

std::string one_line(std::string_view text) {
  constexpr std::size_t kLongest = 200;
  std::string line(text.substr(0, kLongest));
  std::ranges::replace_if(line, is_control, '?');
  return text.size() > kLongest ? line + "..." : line;
}

}  // namespace sluice::config
