// profile: `sluice profile`: measures layers, links and training steps, and writes them to a file
// (docs/reference/profile_file.md). Rank 0 measures the layers and writes; all processes run the steps. Threads: one,
// besides the devices'. Errors: as training; StorageError before measuring if the file cannot be written.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "config/config.h"
#include "profiler/layer_profile.h"
#include "profiler/operator_profile.h"
#include "train/setup/peers.h"
#include "train/setup/setup.h"
#include "tune/advice.h"

namespace sluice::train {

struct ProfileOptions {
  std::filesystem::path config_file;  // must not be overwritten
  std::filesystem::path out;
  std::filesystem::path trace = {};  // of the training steps; may be empty
  bool with_operators = false;       // by layer
  // Seconds of all measuring; 0: unlimited. A budget reduces sizes and steps; each part is written at once.
  double budget_s = 0;
  Launch launch;
};

struct ProfileOutcome {
  profiler::LayerProfile profile;
  std::optional<profiler::OperatorProfile> operators;  // nullopt if not requested or unreadable
  std::string step_table;  // how the training steps spent their time; empty with profile.level = "off"
  std::vector<tune::Advice> advice;

  [[nodiscard]] nlohmann::ordered_json to_json() const;  // same as the file
};

std::optional<ProfileOutcome> run_profile(const config::Config& config, const ProfileOptions& options);

}  // namespace sluice::train
