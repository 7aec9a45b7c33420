// profile: what `sluice profile` does: measures the layers, the links between stages and replicas, and some whole
// training steps, and writes them with the fingerprint of the machine to a file (docs/profile.md).
// With several processes rank 0 measures the layers and writes; all run the steps and the all-reduce.
// Not here: planning with the file (tune/). Threads: one, besides those that work. Errors: as training; StorageError,
// before anything is measured, where the file cannot be written.
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
  std::filesystem::path config_file;  // for refusing to write over it
  std::filesystem::path out;          // profile.json
  std::filesystem::path trace = {};   // of its training steps; empty: none
  bool with_operators = false;        // of each layer
  // Seconds of all measuring; 0: as long as it takes. With a budget fewer sizes and steps are measured, and what is
  // measured is written as soon as it is whole.
  double budget_s = 0;
  Launch launch;
};

struct ProfileOutcome {
  profiler::LayerProfile profile;
  std::optional<profiler::OperatorProfile> operators;  // nothing where they were not asked for, or cannot be read
  std::string step_table;  // where the time of the training steps went; empty with profile.level = "off"
  std::vector<tune::Advice> advice;

  [[nodiscard]] nlohmann::ordered_json to_json() const;  // as in the file
};

// Nothing in a process other than rank 0.
std::optional<ProfileOutcome> run_profile(const config::Config& config, const ProfileOptions& options);

}  // namespace sluice::train
