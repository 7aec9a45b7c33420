// record_fields: reads fields of a record from any source. A missing field or one of another type gives nothing.
// Non-finite numbers are read by name (metrics_writer.h).
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace sluice::report {

// Numbers by field of a metrics line, without null and absent fields.
using Numbers = std::map<std::string, double, std::less<>>;

[[nodiscard]] std::optional<double> number_in(const Numbers& numbers, std::string_view name);

[[nodiscard]] std::optional<double> number_of(const nlohmann::ordered_json& value);

[[nodiscard]] std::optional<double> number_at(const nlohmann::ordered_json& object, std::string_view name);
// Returns nothing also for numbers beyond 2^53, which a double does not hold exactly; no count is so large.
[[nodiscard]] std::optional<std::int64_t> integer_at(const nlohmann::ordered_json& object, std::string_view name);
// Returns nothing also for numbers below 0 or above `most`.
[[nodiscard]] std::optional<std::int64_t> count_at(const nlohmann::ordered_json& object, std::string_view name,
                                                   std::int64_t most);
[[nodiscard]] std::optional<std::string> text_at(const nlohmann::ordered_json& object, std::string_view name);

}  // namespace sluice::report
