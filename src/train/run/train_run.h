// train_run: one training run from configuration to last checkpoint: setup, resume, plan, loop. Rank 0 reads and writes
// the run's files and sends state and step to the other processes.
#pragma once

#include <filesystem>
#include <string>

#include <nlohmann/json.hpp>

#include "config/config.h"
#include "train/plan/plan_description.h"
#include "train/serve/server_role.h"
#include "train/setup/peers.h"
#include "train/trace/step_trace.h"

namespace sluice::train {

struct TrainRunOptions {
  // Empty: runs/<config name>-<date>-<time>, or none for a worker of a parameter server.
  std::filesystem::path run_dir;
  std::filesystem::path config_file;  // names the default run directory
  // "auto": the newest checkpoint of the run directory, if any; else a run or checkpoint directory; empty: a new run.
  std::string resume;
  Serving serving;               // for `sluice serve`
  bool accept_new_data = false;  // allow training data that differ from the checkpoint's
  StepRange traced = {};         // rank 0's value counts; traces go into the run directory
  Launch launch;
  ServerRole server = {};  // set by run_training()
};

// Trains, or does this process's part in a run with a parameter server (server_role.h). Returns when all steps are
// done. Rank 0 and servers return the run directory and the summary in metrics.jsonl.
nlohmann::ordered_json run_training(const config::Config& config, const TrainRunOptions& options);

// Describes what run_training() would do, without a step or a write. Reads and checks what it would start from.
[[nodiscard]] PlanDescription describe_training(const config::Config& config, const TrainRunOptions& options);

}  // namespace sluice::train
