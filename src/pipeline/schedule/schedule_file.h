// schedule_file: reads a hand-written schedule, validates it and reports errors by file and line. draw.h has the
// notation, validate.h the rules. Errors: ConfigError that begins with SOURCE, or SOURCE:LINE.
#pragma once

#include <cstdint>
#include <filesystem>
#include <istream>
#include <string>
#include <string_view>

#include "pipeline/schedule/action.h"

namespace sluice::pipeline {

// 64 devices, 512 chunks and 16 stages per device are 1.6 million actions. At the limit, a
// schedule takes about 0.2 GB of memory and its SVG has half a gigabyte.
inline constexpr std::int64_t kMostActions = 2'000'000;

[[nodiscard]] std::string read_schedule_file(const std::filesystem::path& file);
[[nodiscard]] std::string read_schedule_file(std::istream& in, const std::string& source);

[[nodiscard]] Schedule prove_schedule(std::string_view text, std::string_view source);

[[nodiscard]] Schedule prove_training_schedule(std::string_view text, std::string_view source);

}  // namespace sluice::pipeline
