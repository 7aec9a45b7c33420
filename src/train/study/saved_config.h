// saved_config: finds a checkpoint and the configuration of its run. Errors: CheckpointError, ConfigError.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "config/config.h"

namespace sluice::train {

// dir: a run directory (its newest checkpoint), or one of its checkpoints. option: for the message.
[[nodiscard]] std::filesystem::path checkpoint_in(const std::string& option, const std::filesystem::path& dir);

// From state.json, or, for a checkpoint that another program wrote into a run's folder, from the run's config.toml.
[[nodiscard]] config::Config config_of_checkpoint(const std::filesystem::path& checkpoint, const nlohmann::json& state,
                                                  const std::vector<std::string>& sets = {});

}  // namespace sluice::train
