#include <algorithm>
#include <array>
#include <cmath>
#include <optional>

#include "config/schema.h"
#include "core/concat.h"
#include "core/error.h"
#include "core/text.h"

namespace sluice::config {
namespace {

constexpr std::int64_t kMostDevices = 1024;
constexpr std::int64_t kLargestShare = 1'000'000;
constexpr std::string_view kAuto = "auto";

constexpr std::array<std::string_view, 3> kDeviceChoices{"auto", "cpu", "cuda"};

std::string real_text(double value) { return to_text(Value{value}); }

std::string described(std::monostate) { return {}; }

std::string described(const IntegerRange& range) {
  if (range.high == kNoLimit) return concat(">= ", range.low);
  return concat(range.low, " to ", range.high);
}

std::string described(const RealRange& range) {
  std::string low = concat(range.low_open ? "> " : ">= ", real_text(range.low));
  if (std::isinf(range.high)) return low;
  return concat(low, " and ", range.high_open ? "< " : "<= ", real_text(range.high));
}

std::string described(const Words& words) {
  std::string text;
  for (const auto& word : words) text += (text.empty() ? "" : ", ") + to_text(Value{word});
  return "one of " + text;
}

bool is_auto(const Value& value) {
  const auto* word = std::get_if<std::string>(&value);
  return word != nullptr && *word == kAuto;
}

template <typename... Types>
bool holds(const Value& value) {
  return (std::holds_alternative<Types>(value) || ...);
}

bool is_empty_array(const Value& value) {
  const auto* integers = std::get_if<std::vector<std::int64_t>>(&value);
  return integers != nullptr && integers->empty();
}

std::optional<std::int64_t> bytes_in(const Value& value) {
  const auto* text = std::get_if<std::string>(&value);
  return text != nullptr ? parse_bytes(*text) : std::nullopt;
}

bool has_type(Kind kind, const Value& value) {
  using Integers = std::vector<std::int64_t>;
  using Strings = std::vector<std::string>;
  switch (kind) {
    case Kind::kBool: return holds<bool>(value);
    case Kind::kInteger: return holds<std::int64_t>(value);
    case Kind::kReal: return holds<double, std::int64_t>(value);
    case Kind::kString: return holds<std::string>(value);
    case Kind::kIntegerOrAuto: return holds<std::int64_t>(value) || is_auto(value);
    case Kind::kIntegers: return holds<Integers>(value);
    case Kind::kIntegersOrAuto: return holds<Integers>(value) || is_auto(value);
    case Kind::kWordOrIntegers: return holds<std::string, Integers>(value);
    case Kind::kStrings: return holds<Strings>(value) || is_empty_array(value);
    case Kind::kWordOrWords:
    case Kind::kDevices: return holds<std::string, Strings>(value) || is_empty_array(value);
    case Kind::kBytes: return holds<std::int64_t>(value) || bytes_in(value).has_value();
  }
  return false;
}

bool in_range(const RealRange& range, double value) {
  if (!std::isfinite(value)) return false;
  const bool low = range.low_open ? value > range.low : value >= range.low;
  const bool high = range.high_open ? value < range.high : value <= range.high;
  return low && high;
}

[[noreturn]] void reject(const Key& key, const Value& value, std::string_view expected) {
  throw ConfigError(key.name, " = ", one_line(to_text(value)), " is out of range; it must be ", expected);
}

void check_range(const Key& key, const Value& value, const IntegerRange& range) {
  const auto check_one = [&](std::int64_t integer) {
    if (integer > range.high) reject(key, value, concat("<= ", range.high));
    if (integer < range.low) reject(key, value, described(range));
  };
  if (const auto* integer = std::get_if<std::int64_t>(&value)) check_one(*integer);
  if (const auto bytes = bytes_in(value)) check_one(*bytes);
  if (const auto* integers = std::get_if<std::vector<std::int64_t>>(&value))
    std::ranges::for_each(*integers, check_one);
}

void check_range(const Key& key, const Value& value, const RealRange& range) {
  const auto* integer = std::get_if<std::int64_t>(&value);
  const double number = integer != nullptr ? static_cast<double>(*integer) : std::get<double>(value);
  if (!in_range(range, number)) reject(key, value, described(range));
}

void check_range(const Key& key, const Value& value, const Words& words) {
  const auto check_one = [&](const std::string& word) {
    if (std::ranges::find(words, word) != words.end()) return;
    throw ConfigError(key.name, " = ", one_line(to_text(Value{word})), " is unknown; it must be ", described(words),
                      did_you_mean(word, words));
  };
  if (const auto* word = std::get_if<std::string>(&value)) check_one(*word);
  if (const auto* list = std::get_if<std::vector<std::string>>(&value)) std::ranges::for_each(*list, check_one);
}

void check_range(const Key&, const Value&, std::monostate) {}

bool is_device_name(std::string_view name) {
  const auto colon = name.find(':');
  if (name.substr(0, colon) != "cpu" && name.substr(0, colon) != "cuda") return false;
  if (colon == std::string_view::npos) return false;
  const auto digits = name.substr(colon + 1);
  constexpr std::size_t kMostDigits = 4;
  if (digits.empty() || digits.size() > kMostDigits) return false;
  std::int64_t number = 0;
  for (const char c : digits) {
    if (c < '0' || c > '9') return false;
    number = 10 * number + (c - '0');
  }
  return number < kMostDevices;
}

// A NUL byte would end a path or name early.
bool holds_nul(const Value& value) {
  const auto has_nul = [](const std::string& text) { return text.find('\0') != std::string::npos; };
  if (const auto* text = std::get_if<std::string>(&value)) return has_nul(*text);
  const auto* texts = std::get_if<std::vector<std::string>>(&value);
  return texts != nullptr && std::ranges::any_of(*texts, has_nul);
}

void check_devices(const Key& key, const Value& value) {
  if (const auto* choice = std::get_if<std::string>(&value)) {
    if (std::ranges::find(kDeviceChoices, *choice) != kDeviceChoices.end()) return;
  } else if (const auto* names = std::get_if<std::vector<std::string>>(&value)) {
    const auto wrong = std::ranges::find_if_not(*names, is_device_name);
    if (wrong == names->end() && !names->empty()) return;
    if (names->empty()) reject(key, value, limit_text(key));
    throw ConfigError(key.name, " lists ", one_line(to_text(Value{*wrong})),
                      "; a device name is cpu:N or cuda:N with N from 0 to ", kMostDevices - 1);
  }
  reject(key, value, limit_text(key));
}

// Throws if a list of this key needs elements.
void require_elements(const Key& key, const Value& empty) {
  const Kind kind = key.field.kind;
  if (kind == Kind::kIntegersOrAuto) reject(key, empty, "\"auto\" or one integer per stage");
  if (kind == Kind::kWordOrWords) reject(key, empty, concat(limit_text(key), ", or a list with one word per stage"));
  if (kind == Kind::kWordOrIntegers)
    reject(key, empty, concat(limit_text(key), ", or a list with one integer per replica"));
}

std::string example_of(const Key& key) {
  if (!key.example.empty()) return std::string(key.example);
  switch (key.field.kind) {
    case Kind::kIntegers: return "[1000, 2000]";
    case Kind::kIntegersOrAuto: return "[3, 4]";
    case Kind::kWordOrIntegers: return "[2, 1]";
    case Kind::kDevices: return R"(["cpu:0", "cpu:1"])";
    case Kind::kWordOrWords: return R"(["layer", "none"])";
    case Kind::kBytes: return R"("512MiB")";
    case Kind::kBool:
    case Kind::kInteger:
    case Kind::kReal:
    case Kind::kString:
    case Kind::kStrings:
    case Kind::kIntegerOrAuto: break;
  }
  return default_text(key);
}

}  // namespace

std::string type_text(const Key& key) {
  switch (key.field.kind) {
    case Kind::kBool: return "true or false";
    case Kind::kInteger: return "an integer";
    case Kind::kReal: return "a number";
    case Kind::kString: return "a string";
    case Kind::kIntegerOrAuto: return "an integer or \"auto\"";
    case Kind::kIntegers: return "an array of integers";
    case Kind::kIntegersOrAuto: return "an array of integers or \"auto\"";
    case Kind::kWordOrIntegers: return "a string or an array of integers";
    case Kind::kStrings: return "an array of strings";
    case Kind::kWordOrWords:
    case Kind::kDevices: return "a string or an array of strings";
    case Kind::kBytes: return "an integer or a string with a unit (B, KB to TB, KiB to TiB)";
  }
  return {};
}

std::string limit_text(const Key& key) {
  if (key.field.kind == Kind::kDevices) return R"("auto", "cpu", "cuda" or an array of names such as "cpu:0")";
  return std::visit([](const auto& limit) { return described(limit); }, key.limit);
}

std::string default_text(const Key& key) { return to_text(key.field.get(Config{})); }

std::string need_text(const Key& key) {
  return concat(key.name, " needs ", type_text(key), ", for example ", key.leaf(), " = ", example_of(key));
}

void check_value(const Key& key, const Value& value) {
  if (holds_nul(value)) {
    throw ConfigError(key.name, " = ", one_line(to_text(value)), " contains a NUL character (\\u0000); remove it");
  }
  if (!has_type(key.field.kind, value)) {
    const std::string found =
        holds<std::string>(value) ? concat("the string ", one_line(to_text(value))) : type_of(value);
    throw ConfigError(need_text(key), "; found ", found);
  }
  if (key.field.kind == Kind::kDevices) return check_devices(key, value);
  if (is_empty_array(value)) require_elements(key, value);
  if (key.field.kind == Kind::kWordOrIntegers && holds<std::vector<std::int64_t>>(value))
    return check_range(key, value, IntegerRange{.low = 1, .high = kLargestShare});
  if (is_auto(value) && key.field.kind != Kind::kString) return;
  std::visit([&](const auto& limit) { check_range(key, value, limit); }, key.limit);
}

}  // namespace sluice::config
