// schedule_file: a schedule that somebody wrote by hand: its file is read, its text is proved, and what is wrong with
// it is told by file and line. Not here: the notation (draw.h), the rules (validate.h). Errors: ConfigError that begins
// with SOURCE, or SOURCE:LINE.
#pragma once

#include <cstdint>
#include <filesystem>
#include <istream>
#include <string>
#include <string_view>

#include "pipeline/schedule/action.h"

namespace sluice::pipeline {

// 64 devices, 512 chunks and 16 stages a device are 1.6 million. That many take about 0.2 GB here and make an SVG of
// half a gigabyte: a picture of more helps nobody.
inline constexpr std::int64_t kMostActions = 2'000'000;

// The text of a schedule file, of at most 64 MiB: room for as many actions, and PyTorch's messages.
[[nodiscard]] std::string read_schedule_file(const std::filesystem::path& file);
[[nodiscard]] std::string read_schedule_file(std::istream& in, const std::string& source);

// Parsed, and proved by validate().
[[nodiscard]] Schedule prove_schedule(std::string_view text, std::string_view source);

// Also what a Plan needs: it trains, and all devices have the same number of stages.
[[nodiscard]] Schedule prove_training_schedule(std::string_view text, std::string_view source);

}  // namespace sluice::pipeline
