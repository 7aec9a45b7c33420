// session: one training run from its configuration to its last checkpoint: setup, resume, plan, loop.
#pragma once

#include <filesystem>
#include <optional>

#include <nlohmann/json.hpp>

#include "config/config.h"
#include "train/setup.h"

namespace sluice::train {

struct SessionOptions {
  std::filesystem::path run_dir;  // empty: runs/<config name>-<date>-<time>
  std::string config_name;        // for the default run directory
  // "auto": continue the run directory's newest checkpoint if there is one; else a run or checkpoint directory; empty:
  // a new run.
  std::string resume;
};

// Trains. Returns when all steps are done.
void run_training(const config::Config& config, const SessionOptions& options);

// Plan, layers, parameters and bytes per stage, as `train --dry-run` prints it. Chunks stay as configured ("auto" is
// measured only when training).
struct PlanDescription {
  nlohmann::ordered_json json;
  std::string text;
};
[[nodiscard]] PlanDescription describe_plan(const Setup& setup, const Composition& composition, bool chunks_are_open);

}  // namespace sluice::train
