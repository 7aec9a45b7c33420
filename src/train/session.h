// session: one training run from its configuration to its last checkpoint: setup, resume, plan, loop.
#pragma once

#include <filesystem>
#include <string>

#include "config/config.h"

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

}  // namespace sluice::train
