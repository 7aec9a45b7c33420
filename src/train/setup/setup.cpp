#include "train/setup/setup.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <tuple>
#include <utility>

#include "core/concat.h"
#include "core/divided_up.h"
#include "core/error.h"
#include "core/text.h"
#include "data/sampler.h"
#include "data/subset.h"
#include "device/cpu_threads.h"
#include "measure/fingerprint_of.h"
#include "pipeline/schedule/generators.h"
#include "pipeline/schedule/plan_schedule.h"
#include "pipeline/split.h"
#include "pipeline/state_memory.h"
#include "train/setup/model_options.h"
#include "train/setup/schedule_file.h"
#include "train/setup/server_settings.h"
#include "train/setup/task_options.h"

namespace sluice::train {
namespace {

std::vector<std::string> device_names(const config::DeviceList& list) {
  return list.names.empty() ? std::vector<std::string>{list.choice} : list.names;
}

void check_processes(const Setup& setup) {
  const config::Config& config = setup.config;
  const int processes = setup.process.processes;
  if (processes == 1) return;
  if (config.replicas.has_server()) {
    throw ConfigError("ps.clock = \"", config.ps.clock, "\" runs all workers in one process, but ", processes,
                      " were started; start one");
  }
  if (config.replicas.sync == "none") {
    throw ConfigError("replicas.sync = \"none\" does not synchronise the ", processes,
                      " processes; use \"allreduce\" or start one process");
  }
  if (config.train.global_batch < count_replicas(setup)) {
    throw ConfigError("train.global_batch = ", config.train.global_batch, " is less than the ", count_replicas(setup),
                      " replicas of ", processes, " processes; every replica needs a sample");
  }
}

void take_schedule(Setup& setup, const std::string& schedule_text) {
  setup.config = settled_by_schedule(schedule_text, setup.config);
  setup.schedule_text = schedule_text;
}

void check_schedule(const Setup& setup) {
  const config::Config& config = setup.config;
  const int chunks = configured_chunks(setup);
  const bool chunks_are_given = !setup.schedule_text.empty() || config.pipeline.chunks.value_or(1) > 1;
  if (chunks_are_given && chunks != config.pipeline.chunks) {
    throw ConfigError(
        "train.micro_batch = ", config.train.micro_batch, " makes ", chunks, " micro-batches a step, but ",
        setup.schedule_text.empty() ? "pipeline.chunks = " : "pipeline.order has ", config.pipeline.chunks.value_or(0),
        "; remove ", config.train.is_reproducible_by_layout() ? "pipeline.chunks" : "train.micro_batch");
  }
  const Plan plan{.partition = {std::vector<int>(config.pipeline.stages * virtual_stages(config), 1)},
                  .schedule = schedule_name(setup),
                  .schedule_text = setup.schedule_text,
                  .virtual_stages = virtual_stages(config)};
  static_cast<void>(pipeline::make_train_schedule(plan, chunks));
}

bool model_sizes_are_given(const config::ModelConfig& model) {
  if (models::kind_of(models::ModelOptions(model)) == SampleKind::kTokens || !model.file.empty()) return true;
  return model.classes > 0 && model.channels > 0 && model.image_size > 0;
}

data::DatasetInfo info_of_batch(const config::Config& config, const data::Dataset* set) {
  data::DatasetInfo info;
  if (set == nullptr) {
    info.kind = config.model.file.empty() ? models::kind_of(models::ModelOptions(config.model)) : SampleKind::kTensors;
  } else {
    info = set->info();
  }
  if (config.model.classes > 0) info.classes = config.model.classes;
  if (config.model.channels > 0) info.channels = config.model.channels;
  if (config.model.image_size > 0) info.height = info.width = config.model.image_size;
  return info;
}

std::pair<std::shared_ptr<data::Dataset>, std::shared_ptr<data::Dataset>> cut_in_two(
    const std::shared_ptr<data::Dataset>& whole, const config::Config& config) {
  auto [train, validation] = data::hold_out(whole, config.data.validation);
  const std::int64_t most = config.train.eval_limit;
  if (most > 0) validation = data::limited(std::move(validation), most);
  return {std::move(train), std::move(validation)};
}

void check_order_of_samples(const config::Config& config, const data::Dataset& train) {
  if (config.data.order != "shards" || !train.shard_begins().empty()) return;
  throw ConfigError("data.order = \"shards\" needs complete sets of tar files, but data set ", train.info().name,
                    " is not in tar files, or data.limit or data.validation takes a part of it; use \"shuffled\"");
}

void open_data(Setup& setup, SetupFor what) {
  const config::Config& config = setup.config;
  const bool of_own_batch = what == SetupFor::kOwnBatch;
  if (!of_own_batch || !model_sizes_are_given(config.model))
    std::tie(setup.train_set, setup.test_set) = open_sets(config, what);
  if (setup.train_set != nullptr) check_order_of_samples(config, *setup.train_set);
  setup.global_batch = config::step_batch(config);
  if (!of_own_batch)
    setup.global_batch = std::min(setup.global_batch, std::max<std::int64_t>(setup.train_set->size(), 1));
}

// A run without a data set has no epochs. A long run gives its first step a typical rate.
constexpr std::int64_t kLongRun = 1'000'000;

std::int64_t count_steps(const config::TrainConfig& train, std::int64_t batches_per_epoch) {
  if (train.steps > 0) return train.steps;
  return batches_per_epoch > 0 ? train.epochs * batches_per_epoch : train.warmup_steps + kLongRun;
}

std::int64_t count_warmup_steps(const Setup& setup) {
  const config::TrainConfig& train = setup.config.train;
  return train.warmup_steps + std::llround(train.warmup_epochs * static_cast<double>(setup.steps_per_epoch));
}

void check_warmup(const Setup& setup) {
  const config::TrainConfig& train = setup.config.train;
  if (train.warmup_epochs > 0 && setup.batches_per_epoch == 0) {
    throw ConfigError("train.warmup_epochs = ", train.warmup_epochs,
                      " cannot be counted, because a batch of your own has no epochs; set train.warmup_steps instead");
  }
  const std::int64_t steps = count_warmup_steps(setup);
  if (steps < setup.total_steps) return;
  throw ConfigError(train.warmup_epochs > 0 ? concat("train.warmup_epochs = ", train.warmup_epochs, " of ")
                                            : std::string("train.warmup_steps = "),
                    steps, train.warmup_epochs > 0 ? " steps" : "", " leaves none of the ", setup.total_steps,
                    " steps of the run at the full learning rate; set it lower or train longer");
}

void check_pipeline(const Setup& setup) {
  check_schedule(setup);
  check_partition(setup.config, setup.layers);
}

}  // namespace

void Setup::take(const Constants& chosen) {
  const double alpha = model.lora_rank > 0 ? model.lora_alpha : 0;
  if (chosen.lora_alpha > 0 && alpha > 0 && chosen.lora_alpha != alpha)
    throw CheckpointError("the adapters were trained with model.lora_alpha = ", chosen.lora_alpha, ", but it is ",
                          alpha, " now; set model.lora_alpha = ", chosen.lora_alpha);
  constants = chosen;
  constants.lora_alpha = alpha;
  constants.model_file = model.file.empty() ? std::string() : measure::digest_of_model(model.file);
  model.constants = chosen.model;
  beside_weights = files_beside_weights(config, model, train_set == nullptr ? nullptr : &train_set->info());
}

void settle_worker(config::Config& config) {
  if (!config.replicas.has_server()) return;
  config.ps.worker_batch = config::step_batch(config);
  if (config.ps.partitions > 0) config.pipeline.chunks = config.ps.partitions;
}

void check_partition(const config::Config& config, int layers) {
  const int stages = config.pipeline.stages * virtual_stages(config);
  if (config.pipeline.partition && static_cast<int>(config.pipeline.partition->size()) != stages) {
    throw ConfigError("pipeline.partition has ", config.pipeline.partition->size(),
                      " entries, but pipeline.stages = ", config.pipeline.stages, " with ",
                      counted(virtual_stages(config), "virtual stage"), " a device make ", stages,
                      " stages; give one number of layers for each stage");
  }
  std::vector<int> counts = config.pipeline.partition.value_or(std::vector<int>(stages, 1));
  if (!config.pipeline.partition && stages <= layers) counts.back() += layers - stages;
  pipeline::check_partition({std::move(counts)}, layers, config.model.name);
}

pipeline::ListedSettings listed_settings(const config::Config& config) {
  return {.devices = !config.device.list.names.empty(), .partition = config.pipeline.partition.has_value()};
}

int cpu_slots(const std::vector<device::Device>& devices) {
  return static_cast<int>(std::ranges::count(devices, device::DeviceKind::kCpu, &device::Device::kind));
}

std::string schedule_name(const Setup& setup) {
  return setup.schedule_text.empty() ? setup.config.pipeline.schedule : Plan::kFromFile;
}

int virtual_stages(const config::Config& config) {
  return config.pipeline.virtual_stages.value_or(pipeline::default_virtual_stages(config.pipeline.schedule));
}

bool chunks_are_open(const config::Config& config) { return !config.pipeline.chunks && config.train.micro_batch == 0; }

int configured_chunks(const config::Config& config, int processes, std::int64_t global_batch) {
  if (config.train.micro_batch > 0) {
    const std::int64_t replicas = std::int64_t{config.replicas.local} * processes;
    const std::int64_t of_replica = divided_up(global_batch, replicas);
    return static_cast<int>(divided_up(of_replica, config.train.micro_batch));
  }
  const int least = pipeline::least_micro_batches(config.pipeline.schedule, config.pipeline.stages);
  return config.pipeline.chunks.value_or(std::max(config.pipeline.stages, least));
}

int configured_chunks(const Setup& setup) {
  return configured_chunks(setup.config, setup.process.processes, setup.global_batch);
}

int count_replicas(const Setup& setup) { return setup.config.replicas.local * setup.process.processes; }

std::int64_t micro_batch_size(const Setup& setup) {
  return std::max<std::int64_t>(setup.global_batch / count_replicas(setup) / configured_chunks(setup), 1);
}

comm::Collectives collectives_of(const config::Config& config) {
  if (config.replicas.backend == "auto") return comm::Collectives::kAuto;
  return config.replicas.backend == "nccl" ? comm::Collectives::kNccl : comm::Collectives::kGloo;
}

namespace {

void check_exchange(const Setup& setup) {
  const config::Config& config = setup.config;
  const bool on_gpus = cpu_slots(setup.devices) < std::ssize(setup.devices);
  if (config.replicas.elastic && setup.process.processes > 1 && on_gpus && config.replicas.backend != "gloo") {
    throw ConfigError(
        "replicas.elastic cannot end NCCL's operations when a process is lost; set replicas.backend = "
        "\"gloo\", or replicas.elastic = false");
  }
  if (!config.train.is_reproducible_by_layout() || setup.process.processes == 1 || !on_gpus) return;
  if (config.replicas.backend == "gloo") {
    throw ConfigError(
        "replicas.backend = \"gloo\" cannot sum GPUs' gradients with train.reproducible = \"layout\": Gloo exchanges "
        "CPU "
        "tensors only; choose \"nccl\" or \"auto\"");
  }
}

}  // namespace

Setup make_setup(const config::Config& wanted, const ProcessRank& process, SetupFor what,
                 const std::optional<std::string>& kept_schedule) {
  config::validate(wanted);  // the configuration may come from code instead of a file
  Setup setup{.config = wanted, .process = process};
  settle_worker(setup.config);
  settle_task(setup.config);
  const bool has_schedule_file = !wanted.pipeline.order.empty();
  if (has_schedule_file && process.rank == 0)
    take_schedule(setup, kept_schedule ? *kept_schedule : read_configured_schedule(wanted));
  const bool waits_for_schedule = has_schedule_file && setup.schedule_text.empty();
  const config::Config& config = setup.config;
  check_processes(setup);
  apply_libtorch_settings(config);
  const bool of_own_batch = what == SetupFor::kOwnBatch;
  open_data(setup, what);
  setup.model =
      model_options(config, of_own_batch ? info_of_batch(config, setup.train_set.get()) : setup.train_set->info());
  if (!of_own_batch) check_fields(config, setup.model, {setup.train_set.get(), setup.test_set.get()});
  const data::DatasetInfo* const info = setup.train_set == nullptr ? nullptr : &setup.train_set->info();
  setup.task = task_of(setup.model, info, config.train.label_smoothing);
  static_cast<void>(best_by(config.train, setup.task->scores()));  // checks it
  if (!of_own_batch) setup.masking = masking_of(config, setup.model);
  setup.layers = models::count_layers(setup.model);
  if (!waits_for_schedule) check_pipeline(setup);
  settle_process(setup, process);
  check_exchange(setup);
  if (setup.train_set != nullptr) {
    count_epoch(setup, setup.train_set->size());
    data::check_kind(setup.train_set->info(), train_loader_options(setup));
  }
  setup.total_steps = count_steps(config.train, setup.batches_per_epoch);
  check_warmup(setup);
  return setup;
}

void count_epoch(Setup& setup, std::int64_t samples) {
  setup.batches_per_epoch = data::batches_per_epoch(samples, setup.global_batch);
  setup.steps_per_epoch =
      setup.config.replicas.has_server() ? divided_up(samples, samples_of_update(setup)) : setup.batches_per_epoch;
}

void settle_schedule(Setup& setup, const std::string& schedule_text) {
  take_schedule(setup, schedule_text);
  check_pipeline(setup);
}

double own_cores(const ProcessRank& process) {
  return process.cores > 0 ? process.cores : static_cast<double>(device::available_cores()) / process.local_size;
}

double share_of_cores(const ProcessRank& process) { return own_cores(process) / device::available_cores(); }

engine::DeviceChoice devices_for(const Setup& setup, int slots) {
  const config::Config& config = setup.config;
  const ProcessRank& process = setup.process;
  engine::DeviceChoice choice{
      device::choose_devices(device_names(config.device.list), slots, process.local_rank, process.local_size)};
  choice.cpu_threads = device::threads_per_device(config.device.threads, cpu_slots(choice.devices), own_cores(process));
  return choice;
}

void settle_process(Setup& setup, const ProcessRank& process) {
  setup.process = process;
  const config::Config& config = setup.config;
  auto [devices, threads] = devices_for(setup, config.pipeline.stages * config.replicas.local);
  setup.devices = std::move(devices);
  setup.cpu_threads = threads;
}

Setup with_settings(const Setup& setup, const config::Config& config) {
  Setup changed = setup;
  changed.config = config;
  check_processes(changed);
  check_pipeline(changed);
  settle_process(changed, setup.process);
  return changed;
}

std::pair<std::shared_ptr<data::Dataset>, std::shared_ptr<data::Dataset>> open_sets(const config::Config& config,
                                                                                    SetupFor what) {
  data::DatasetOptions options = dataset_options(config);
  options.text.must_know_labels = what == SetupFor::kEvaluation;
  std::shared_ptr<data::Dataset> train = data::open_dataset(options, data::Split::kTrain);
  if (config.data.validation > 0) return cut_in_two(train, config);
  const std::int64_t most = config.train.eval_limit;
  if (most > 0) options.limit = options.limit > 0 ? std::min(options.limit, most) : most;
  return {std::move(train), data::open_dataset(options, data::Split::kTest)};
}

void identify_data(Setup& setup) { setup.data = identity_of(*setup.train_set, *setup.test_set); }

std::vector<std::string> unused_devices(const Setup& setup, int slots) {
  return device::unused_names(setup.config.device.list.names, slots, setup.process.local_size);
}

namespace {

// Length that the first process pads its batches of texts to, on average, rounded up to a multiple of 8. 0: unknown, or
// not less than data.max_length.
std::int64_t usual_tokens(const Setup& setup) {
  if (setup.config.data.pad == "max") return 0;
  data::LoaderOptions options = train_loader_options(setup);
  options.share.first = 0;  // the same in all processes
  const std::int64_t eighths = std::llround(std::ceil(data::mean_width(*setup.train_set, options) / 8));
  return 8 * eighths < setup.train_set->info().context ? 8 * eighths : 0;
}

}  // namespace

measure::Workload workload_of(const Setup& setup) {
  const bool is_text = setup.train_set != nullptr && setup.train_set->info().kind == SampleKind::kTokens;
  std::vector<std::string> fields;
  if (is_text)
    std::ranges::transform(setup.train_set->info().fields, std::back_inserter(fields), &data::FieldInfo::name);
  return {.model = setup.model,
          .task = setup.task,
          .tokens = is_text ? setup.train_set->info().context : 0,
          .usual_tokens = is_text ? usual_tokens(setup) : 0,
          .optional_inputs = std::move(fields),
          .layers = setup.layers,
          .device = setup.devices.front(),
          .threads = setup.cpu_threads,
          .numerics = numerics_of(setup.config),
          .replicas = count_replicas(setup),
          .optimizer = optimizer_options(setup.config),
          .is_deterministic = setup.config.train.deterministic || setup.config.train.is_reproducible_by_layout(),
          .tf32 = setup.config.device.tf32,
          .memory_limit = static_cast<std::uint64_t>(setup.config.device.memory_limit.bytes)};
}

optim::LrSchedule lr_schedule(const Setup& setup) {
  const config::TrainConfig& train = setup.config.train;
  const std::int64_t epoch = setup.steps_per_epoch > 0 ? setup.steps_per_epoch : kLongRun;
  std::vector<std::int64_t> decay_steps = train.lr_decay_steps;
  for (const std::int64_t epochs : train.lr_decay_epochs) decay_steps.push_back(epochs * epoch);
  return {.kind = train.lr_schedule,
          .lr = train.lr,
          .lr_min = train.lr_min,
          .warmup_steps = count_warmup_steps(setup),
          .total_steps = setup.total_steps,
          .decay_steps = std::move(decay_steps),
          .decay_every = train.lr_decay_every + train.lr_decay_every_epochs * epoch,  // one of the two is 0
          .decay = train.lr_decay,
          .power = train.lr_power};
}

bool keeps_features(const config::Config& config) {
  return config.freeze.cache != "off" && config.freeze.policy != "none";
}

std::int64_t epochs_of(const Setup& setup) {
  if (setup.config.train.steps == 0) return std::max(setup.config.train.epochs, 1);
  return setup.batches_per_epoch > 0 ? divided_up(setup.total_steps, setup.batches_per_epoch) : 1;
}

}  // namespace sluice::train
