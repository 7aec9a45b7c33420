#include "app/quantities.h"

#include <charconv>
#include <cmath>

namespace sluice::app {

std::optional<double> parse_quantity(std::string_view text, Units units, std::optional<double> plain) {
  double number = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc{} || !std::isfinite(number)) return std::nullopt;
  std::string_view unit(rest, end);
  if (unit.empty()) return plain ? std::optional(number * *plain) : std::nullopt;
  if (unit.starts_with(' ')) unit.remove_prefix(1);
  for (const auto& [name, size] : units)
    if (unit == name) return number * size;
  return std::nullopt;
}

}  // namespace sluice::app
