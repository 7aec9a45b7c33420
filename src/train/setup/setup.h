// setup: data sets, model options and devices of a configuration, with its open keys (0) resolved from the data. For
// the Plan see choose_plan.h. Errors: ConfigError with the key; DataError from the data sets.
#pragma once

#include <map>
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
#include "task/task.h"
#include "train/setup/constants.h"
#include "train/setup/data_identity.h"

namespace sluice::train {

struct ProcessRank {
  int rank = 0;
  int processes = 1;
  int local_rank = 0;  // among the processes that share this machine's devices
  int local_size = 1;
  double cores = 0;  // exclusive to this process (comm::World::cores); 0: the machine's cores / local_size
  bool spans_machines = false;
};

struct Setup {
  config::Config config;      // includes the schedule file's settings
  std::string schedule_text;  // of pipeline.order; empty without one, or until settle_schedule()
  ProcessRank process;
  std::shared_ptr<data::Dataset> train_set;  // shared with abandoned reads that hang; null: see SetupFor
  std::shared_ptr<data::Dataset> test_set;
  models::ModelOptions model;
  task::TaskPtr task;
  data::MaskOptions masking;  // of a masked language model
  // Files that Hugging Face's from_pretrained() reads beside the weights (task_options.h); filled by take().
  std::map<std::string, std::string> beside_weights;
  Constants constants;                 // filled by take()
  std::filesystem::path weights_path;  // of model.weights; filled by read_resume_point() if the run starts from them
  int layers = 0;
  std::int64_t global_batch = 1;        // samples of a full batch: as configured, at most the size of the set
  std::vector<device::Device> devices;  // ordered by replica
  int cpu_threads = 1;                  // per CPU device
  std::int64_t batches_per_epoch = 0;
  std::int64_t steps_per_epoch = 0;  // the same, or a parameter server's updates
  std::int64_t total_steps = 0;      // optimizer steps of the whole run
  DataIdentity data;                 // filled by identify_data()
  // Parameter servers as HOST:PORT (server_role.h), filled by the caller; empty if there are none.
  std::vector<std::string> servers;

  // Sets constants and beside_weights. Call it before the model is made. Otherwise the model has the constants of fresh
  // weights. CheckpointError if adapters were trained with another model.lora_alpha.
  void take(const Constants& chosen);
};

enum class SetupFor {
  kRun,
  // One step on a batch of the user. Configured model sizes override the data set's; if all are configured, both sets
  // are null.
  kOwnBatch,
  kEvaluation,  // the labels of texts must be those of model.config, if it has any
};
// kept_schedule: the text of pipeline.order, if known (schedule_file.h). Without it rank 0 reads the file, and the
// other ranks must call settle_schedule().
[[nodiscard]] Setup make_setup(const config::Config& config, const ProcessRank& process = {},
                               SetupFor what = SetupFor::kRun, const std::optional<std::string>& kept_schedule = {});
void settle_schedule(Setup& setup, const std::string& schedule_text);
// Sets batches_per_epoch and steps_per_epoch for a training split of so many samples.
void count_epoch(Setup& setup, std::int64_t samples);
[[nodiscard]] std::pair<std::shared_ptr<data::Dataset>, std::shared_ptr<data::Dataset>> open_sets(
    const config::Config& config, SetupFor what = SetupFor::kRun);
void identify_data(Setup& setup);

// The first `slots` devices of device.list, and the threads of each CPU device. ConfigError if there are fewer.
[[nodiscard]] engine::DeviceChoice devices_for(const Setup& setup, int slots);

void settle_process(Setup& setup, const ProcessRank& process);

// The same run under other settings of [pipeline] and replicas.local. ConfigError if they do not suit it.
[[nodiscard]] Setup with_settings(const Setup& setup, const config::Config& config);

[[nodiscard]] pipeline::ListedSettings listed_settings(const config::Config& config);

// Cores for this process alone: less than 1 if there are more processes than cores.
[[nodiscard]] double own_cores(const ProcessRank& process);
[[nodiscard]] double share_of_cores(const ProcessRank& process);

[[nodiscard]] int cpu_slots(const std::vector<device::Device>& devices);

[[nodiscard]] std::vector<std::string> unused_devices(const Setup& setup, int slots);

[[nodiscard]] std::string schedule_name(const Setup& setup);

[[nodiscard]] int virtual_stages(const config::Config& config);
void check_partition(const config::Config& config, int layers);

[[nodiscard]] bool chunks_are_open(const config::Config& config);
// Resolves ps.worker_batch, and copies ps.partitions (if set) to pipeline.chunks. Does nothing without a server.
void settle_worker(config::Config& config);
// As configured, or from the micro-batch size for a full batch. If open: one per device, or what the schedule needs.
[[nodiscard]] int configured_chunks(const config::Config& config, int processes, std::int64_t global_batch);
[[nodiscard]] int configured_chunks(const Setup& setup);

[[nodiscard]] measure::Workload workload_of(const Setup& setup);

[[nodiscard]] int count_replicas(const Setup& setup);

// Samples of a micro-batch in configured_chunks(), rounded down, at least 1.
[[nodiscard]] std::int64_t micro_batch_size(const Setup& setup);

[[nodiscard]] comm::Collectives collectives_of(const config::Config& config);
[[nodiscard]] optim::LrSchedule lr_schedule(const Setup& setup);

[[nodiscard]] bool keeps_features(const config::Config& config);

// Number of epochs that the run begins; the last may be incomplete. 1 without a data set.
[[nodiscard]] std::int64_t epochs_of(const Setup& setup);

// The replicas of this process in the plan.
[[nodiscard]] data::Share replica_share(const Setup& setup, const Plan& plan);
// The samples of a local replica in a full batch.
[[nodiscard]] std::int64_t samples_of(const Setup& setup, const Plan& plan, ReplicaId replica);

// This process's share of the global batch; without a plan, an equal share for each configured replica.
[[nodiscard]] data::LoaderOptions train_loader_options(const Setup& setup, const Plan& plan);
[[nodiscard]] data::LoaderOptions train_loader_options(const Setup& setup);
[[nodiscard]] data::LoaderOptions eval_loader_options(const Setup& setup, const Plan& plan);
[[nodiscard]] data::LoaderOptions eval_loader_options(const Setup& setup);

}  // namespace sluice::train
