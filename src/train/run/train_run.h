// train_run: one training run from its configuration to its last checkpoint: setup, resume, plan, loop. Of several
// processes rank 0 reads and writes the run's files; the others get state and step from it.
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
  // Empty: runs/<config name>-<date>-<time>; of a worker of a parameter server: none.
  std::filesystem::path run_dir;
  std::filesystem::path config_file;  // names the default run directory
  // "auto": continue the run directory's newest checkpoint if there is one; else a run or checkpoint directory; empty:
  // a new run.
  std::string resume;
  Serving serving;               // as a parameter server of workers that are started apart (`sluice serve`)
  bool accept_new_data = false;  // go on with other training data than the checkpoint was made with
  StepRange traced = {};         // their traces are written into the run directory; rank 0's count
  Launch launch;
  ServerRole server = {};  // set by run_training(): where this process serves
};

// Trains, or does this process's part in a run on a parameter server (server_role.h). Returns when all steps are done:
// in rank 0 and in a server the run directory and the fields of the summary in metrics.jsonl.
nlohmann::ordered_json run_training(const config::Config& config, const TrainRunOptions& options);

// What run_training() would do, without a step and without writing anything: reads and checks what it would start from.
[[nodiscard]] PlanDescription describe_training(const config::Config& config, const TrainRunOptions& options);

}  // namespace sluice::train
