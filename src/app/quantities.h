// quantities: parses numbers with a unit from options: "10Gbit/s", "50us". core/text.h parses bytes. Never throws.
#pragma once

#include <array>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

namespace sluice::app {

using Units = std::span<const std::pair<std::string_view, double>>;

inline constexpr std::array<std::pair<std::string_view, double>, 4> kTimeUnits{
    {{"ns", 1e-9}, {"us", 1e-6}, {"ms", 1e-3}, {"s", 1}}};
inline constexpr std::array<std::pair<std::string_view, double>, 6> kRateUnits{
    {{"kbit/s", 1e3 / 8}, {"Mbit/s", 1e6 / 8}, {"Gbit/s", 1e9 / 8}, {"KB/s", 1e3}, {"MB/s", 1e6}, {"GB/s", 1e9}}};

inline constexpr const char* kTimeWords = "ns, us, ms or s";
inline constexpr const char* kRateWords = "kbit/s, Mbit/s, Gbit/s, KB/s, MB/s or GB/s";

// plain: the factor for a number without a unit; nullopt rejects it. Returns nullopt for other text and overflow.
[[nodiscard]] std::optional<double> parse_quantity(std::string_view text, Units units,
                                                   std::optional<double> plain = {});

}  // namespace sluice::app
