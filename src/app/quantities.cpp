#include "app/quantities.h"

#include <algorithm>
#include <charconv>
#include <cmath>

namespace sluice::app {

std::optional<double> parse_quantity(std::string_view text, Units units, std::optional<double> plain) {
  double number = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc{} || !std::isfinite(number)) return std::nullopt;
  std::string_view unit(rest, end);
  std::optional<double> size = plain;
  if (!unit.empty()) {
    if (unit.starts_with(' ')) unit.remove_prefix(1);
    const auto found = std::ranges::find(units, unit, &Units::value_type::first);
    size = found != units.end() ? std::optional(found->second) : std::nullopt;
  }
  return size && std::isfinite(number * *size) ? std::optional(number * *size) : std::nullopt;
}

}  // namespace sluice::app
