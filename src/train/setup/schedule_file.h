// schedule_file: the text of the user's schedule file (pipeline.order), and the settings that follow from it. Rank 0
// reads the file and sends its text (same_start.h); a resumed run uses the text in its checkpoint. For the format see
// pipeline/schedule/schedule_file.h. Errors: ConfigError that begins with the key or the file.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include <nlohmann/json.hpp>

#include "config/config.h"

namespace sluice::train {

[[nodiscard]] std::string read_configured_schedule(const config::Config& config);

// The configuration with the file's stages, virtual stages and chunks. Keys that the user set must agree with the file.
[[nodiscard]] config::Config settled_by_schedule(const std::string& schedule_text, config::Config config);

// Schedule text of a checkpoint (state: its state.json) with the same pipeline.order; warns if the file has changed.
[[nodiscard]] std::optional<std::string> kept_schedule(const config::Config& config, const nlohmann::json& state,
                                                       const std::string& source);

// The same for the checkpoint that a run resumes. from: a run or checkpoint directory; may be empty.
[[nodiscard]] std::optional<std::string> kept_schedule(const config::Config& config, const std::filesystem::path& from);

}  // namespace sluice::train
