#include "report/record_fields.h"

#include <cmath>
#include <limits>

namespace sluice::report {

using Json = nlohmann::ordered_json;

namespace {

// Faster than Json::find(), which compares every name letter by letter: most names differ in length, and there are
// millions of lines.
const Json* find(const Json& object, std::string_view name) {
  if (!object.is_object()) return nullptr;
  for (const auto& [key, value] : object.get_ref<const Json::object_t&>()) {
    if (key == name) return &value;
  }
  return nullptr;
}

}  // namespace

std::optional<double> number_in(const Numbers& numbers, std::string_view name) {
  const auto found = numbers.find(name);
  return found == numbers.end() ? std::nullopt : std::optional(found->second);
}

std::optional<double> number_of(const Json& value) {
  if (value.is_number()) return value.get<double>();
  if (!value.is_string()) return std::nullopt;
  const auto& name = value.get_ref<const std::string&>();
  if (name == "NaN") return std::numeric_limits<double>::quiet_NaN();
  if (name == "Infinity") return std::numeric_limits<double>::infinity();
  if (name == "-Infinity") return -std::numeric_limits<double>::infinity();
  return std::nullopt;
}

std::optional<double> number_at(const Json& object, std::string_view name) {
  const Json* const found = find(object, name);
  return found == nullptr ? std::nullopt : number_of(*found);
}

std::optional<std::int64_t> integer_at(const Json& object, std::string_view name) {
  constexpr double kLargest = 9e15;
  const auto number = number_at(object, name);
  if (!number || !(std::abs(*number) < kLargest)) return std::nullopt;
  return static_cast<std::int64_t>(*number);
}

std::optional<std::int64_t> count_at(const Json& object, std::string_view name, std::int64_t most) {
  const auto count = integer_at(object, name);
  return count && *count >= 0 && *count <= most ? count : std::nullopt;
}

std::optional<std::string> text_at(const Json& object, std::string_view name) {
  const Json* const found = find(object, name);
  return found == nullptr || !found->is_string() ? std::nullopt : std::optional(found->get<std::string>());
}

}  // namespace sluice::report
