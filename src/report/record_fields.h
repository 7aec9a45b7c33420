// record_fields: the fields of a line of records, whoever wrote it: what is absent, or of another kind, is nothing.
// Numbers that JSON cannot hold are read by their names (metrics_writer.h). Pure functions.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace sluice::report {

// Numbers by field of a metrics line. Null and absent fields are not in it.
using Numbers = std::map<std::string, double, std::less<>>;

[[nodiscard]] std::optional<double> number_in(const Numbers& numbers, std::string_view name);

// NaN and infinities are written by name.
[[nodiscard]] std::optional<double> number_of(const nlohmann::ordered_json& value);

// The number that a field holds. Nothing when it is absent or no number.
[[nodiscard]] std::optional<double> number_at(const nlohmann::ordered_json& object, std::string_view name);
// Nothing also beyond what a double holds exactly: no count of ours is so large.
[[nodiscard]] std::optional<std::int64_t> integer_at(const nlohmann::ordered_json& object, std::string_view name);
// Nothing where it is negative, or more than any run has.
[[nodiscard]] std::optional<std::int64_t> count_at(const nlohmann::ordered_json& object, std::string_view name,
                                                   std::int64_t most);
[[nodiscard]] std::optional<std::string> text_at(const nlohmann::ordered_json& object, std::string_view name);

}  // namespace sluice::report
