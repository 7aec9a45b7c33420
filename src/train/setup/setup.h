// setup: from a configuration to what it stands for: data sets, model options, devices.
// What the configuration leaves open (0 = from the data) is decided here. Not here: the Plan (choose_plan.h,
// choose_chunks.h). Errors: ConfigError names the key; DataError from the data sets.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/processes.h"
#include "config/config.h"
#include "data/dataset.h"
#include "data/loader.h"
#include "device/device.h"
#include "engine/device_choice.h"
#include "measure/workload.h"
#include "models/model.h"
#include "optim/lr_schedule.h"
#include "pipeline/state_memory.h"
#include "train/setup/constants.h"
#include "train/setup/data_identity.h"

namespace sluice::train {

// Where this process stands among those of the run.
struct ProcessRank {
  int rank = 0;
  int processes = 1;
  int local_rank = 0;  // among those that share the devices of this machine
  int local_size = 1;
  double cores = 0;             // that it has to itself (comm::World::cores); 0: those of this machine over local_size
  bool spans_machines = false;  // some process is on another machine
};

struct Setup {
  config::Config config;      // with what the schedule file settles
  std::string schedule_text;  // of pipeline.order; empty: none, or settle_schedule() is still to come
  ProcessRank process;
  std::shared_ptr<data::Dataset> train_set;  // shared with a read that hangs and is abandoned; null: SetupFor
  std::shared_ptr<data::Dataset> test_set;
  models::ModelOptions model;
  Constants constants;                  // filled by take()
  std::filesystem::path weights_path;   // of model.weights; filled by read_resume_point() if the run begins with them
  int layers = 0;                       // of the model
  std::int64_t global_batch = 1;        // samples of a whole one: as configured, but no more than there are
  std::vector<device::Device> devices;  // replica by replica
  int cpu_threads = 1;                  // per CPU device
  std::int64_t batches_per_epoch = 0;
  std::int64_t total_steps = 0;  // optimizer steps of the whole run
  DataIdentity data;             // filled by identify_data()
  std::vector<std::string>
      servers;  // of parameters: HOST:PORT (server_role.h), filled by who knows; none: there are none

  // Before the model is made; without it the model has the constants of fresh weights.
  void take(const Constants& chosen) {
    constants = chosen;
    model.constants = chosen.model;
  }
};

enum class SetupFor {
  kRun,
  // One step on a batch that the user brings: where the configuration gives the model's sizes they stand, whatever the
  // data set has; where it gives all of them no data set is opened, and both are null.
  kOwnBatch,
};
// kept_schedule: what pipeline.order stands for where that is known already (schedule_file.h). Otherwise its file is
// read, but only by rank 0: in the others settle_schedule() follows.
[[nodiscard]] Setup make_setup(const config::Config& config, const ProcessRank& process = {},
                               SetupFor what = SetupFor::kRun, const std::optional<std::string>& kept_schedule = {});
// Rank 0's schedule file, with all that follows from it. settle_process() has to come after it.
void settle_schedule(Setup& setup, const std::string& schedule_text);
// The data that a run of this configuration trains on, and those that it evaluates.
[[nodiscard]] std::pair<std::shared_ptr<data::Dataset>, std::shared_ptr<data::Dataset>> open_sets(
    const config::Config& config);
// Reads samples to fill setup.data.
void identify_data(Setup& setup);

// So many of this process's devices, as device.list has them, and the threads of each CPU device among them.
// ConfigError where there are fewer.
[[nodiscard]] engine::DeviceChoice devices_for(const Setup& setup, int slots);

// The process's position is known better now: which processes share this machine's devices and cores.
void settle_process(Setup& setup, const ProcessRank& process);

// The same run under other settings of [pipeline] and replicas.local. ConfigError where they do not suit it.
[[nodiscard]] Setup with_settings(const Setup& setup, const config::Config& config);

// Of device.list and pipeline.partition.
[[nodiscard]] pipeline::ListedSettings listed_settings(const config::Config& config);

// Cores that this process has to itself: less than 1 if there are more processes than cores.
[[nodiscard]] double own_cores(const ProcessRank& process);
// own_cores() as a fraction of the cores that this process may run on.
[[nodiscard]] double share_of_cores(const ProcessRank& process);

[[nodiscard]] int cpu_slots(const std::vector<device::Device>& devices);

// Names in device.list that are more than a plan of so many slots in each process needs.
[[nodiscard]] std::vector<std::string> unused_devices(const Setup& setup, int slots);

// Of the plan.
[[nodiscard]] std::string schedule_name(const Setup& setup);

// A device, as configured or as the schedule has them.
[[nodiscard]] int virtual_stages(const config::Config& config);
// That pipeline.partition suits the stages and so many layers. Errors: ConfigError.
void check_partition(const config::Config& config, int layers);

// True when the number of chunks is left to choose_chunks.h.
[[nodiscard]] bool chunks_are_open(const config::Config& config);
// What a worker of a parameter server runs, under the keys that all else reads.
void settle_worker(config::Config& config);
// As configured, or what the micro-batch size gives for a whole batch; where it is open, one per device, or as many as
// the schedule needs.
[[nodiscard]] int configured_chunks(const config::Config& config, int processes, std::int64_t global_batch);
[[nodiscard]] int configured_chunks(const Setup& setup);

[[nodiscard]] measure::Workload workload_of(const Setup& setup);

// Over all processes.
[[nodiscard]] int count_replicas(const Setup& setup);

// Samples of a micro-batch in configured_chunks(), rounded down, at least 1.
[[nodiscard]] std::int64_t micro_batch_size(const Setup& setup);

[[nodiscard]] comm::Collectives collectives_of(const config::Config& config);
[[nodiscard]] optim::LrSchedule lr_schedule(const Setup& setup);

// Whether freeze.cache has anything to keep.
[[nodiscard]] bool keeps_features(const config::Config& config);

// That the run begins, the last one maybe cut short; 1 where there is no data set.
[[nodiscard]] std::int64_t epochs_of(const Setup& setup);

// The share of the batches of the configured global size that a process with so many local replicas takes; without
// their number, as configured.
[[nodiscard]] data::LoaderOptions train_loader_options(const Setup& setup, int replicas);
[[nodiscard]] data::LoaderOptions train_loader_options(const Setup& setup);
[[nodiscard]] data::LoaderOptions eval_loader_options(const Setup& setup, int replicas);
[[nodiscard]] data::LoaderOptions eval_loader_options(const Setup& setup);

}  // namespace sluice::train
