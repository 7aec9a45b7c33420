// schedule_file: pipeline.order, a schedule that the user wrote: its text, and what it settles of the configuration. Of
// several processes rank 0 reads the file, the others get the text from it (same_start.h); a run that is resumed goes
// on with the text that its checkpoint has. Not here: what such a file must hold (pipeline/schedule/schedule_file.h).
// Errors: ConfigError that begins with the key or the file.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include <nlohmann/json.hpp>

#include "config/config.h"

namespace sluice::train {

// What the file says, without its comments; empty where no pipeline.order is set.
[[nodiscard]] std::string read_configured_schedule(const config::Config& config);

// The configuration with the stages, virtual stages and chunks of the file. What was set must agree with it.
[[nodiscard]] config::Config settled_by_schedule(const std::string& schedule_text, config::Config config);

// The schedule of a checkpoint that was made with this pipeline.order; nothing for another one. Warns where the file is
// no longer what it was. state: the checkpoint's state.json; source: names the checkpoint.
[[nodiscard]] std::optional<std::string> kept_schedule(const config::Config& config, const nlohmann::json& state,
                                                       const std::string& source);

// The same of the checkpoint that a run goes on from. from: a run or checkpoint directory; empty: none.
[[nodiscard]] std::optional<std::string> kept_schedule(const config::Config& config, const std::filesystem::path& from);

}  // namespace sluice::train
