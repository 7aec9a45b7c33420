#include "train/plan/memory_advice.h"

#include <algorithm>
#include <array>

#include "core/concat.h"
#include "core/log.h"
#include "core/text.h"
#include "measure/measure_layers.h"
#include "pipeline/failure.h"
#include "pipeline/state_memory.h"
#include "train/plan/choose_plan.h"
#include "train/plan/plan_settings.h"
#include "train/setup/setup.h"

namespace sluice::train {
namespace {

struct Variation {
  std::string setting;
  config::Config config;
  Plan plan;
};

bool is_accepted(const config::Config& config) {
  try {
    config::validate(config);
    return true;
  } catch (const ConfigError&) {
    return false;
  }
}

struct Candidate {
  std::string setting;
  std::uint64_t bytes;
};

// The first of next(0), next(1), ... that fits, else the one that needs least. Skips invalid configurations.
template <typename Next>
std::optional<Candidate> first_fitting(const tune::MemoryModel& model, std::uint64_t limit, const Next& next) {
  std::optional<Candidate> best;
  for (int i = 0; const std::optional<Variation> variation = next(i); ++i) {
    if (!is_accepted(variation->config)) continue;
    const auto bytes = tune::estimate_bytes(model, variation->plan);
    if (!bytes) continue;
    if (!best || *bytes < best->bytes) best = Candidate{variation->setting, *bytes};
    if (best->bytes <= limit) return best;
  }
  return best;
}

constexpr std::int64_t kMostChunks = 65'536;  // the maximum of pipeline.chunks

bool has_the_batch_of_all(const config::Config& config) { return config.ps.policy == "dual_batch"; }

const char* key_of_chunks(const config::Config& config) {
  return config.replicas.has_server() && config.ps.partitions > 0 ? "ps.partitions" : "pipeline.chunks";
}

const char* key_of_batch(const config::Config& config) {
  return config.replicas.has_server() ? "ps.worker_batch" : "train.global_batch";
}

// Each function below returns variation i of the failed configuration, or nullopt after the last.
std::optional<Variation> more_chunks(const tune::MemoryModel& model, Variation next, int i) {
  if (next.config.train.micro_batch > 0) return std::nullopt;  // it decides the number of chunks
  const std::int64_t chunks = std::int64_t{next.plan.chunks} << std::min(i + 1, 20);
  if (i >= 20 || chunks > std::min<std::int64_t>(tune::replica_samples(model, next.plan), kMostChunks))
    return std::nullopt;
  next.plan.chunks = static_cast<int>(chunks);
  next.config.pipeline.chunks = next.plan.chunks;
  if (next.config.ps.partitions > 0) next.config.ps.partitions = next.plan.chunks;
  next.setting = concat(key_of_chunks(next.config), " = ", chunks);
  return next;
}

std::optional<Variation> smaller_micro_batch(const tune::MemoryModel& model, Variation next, int i) {
  next.config.train.micro_batch >>= std::min(i + 1, 60);
  if (next.config.train.micro_batch == 0) return std::nullopt;
  next.plan.chunks = configured_chunks(next.config, model.processes, next.plan.global_batch);
  next.setting = concat("train.micro_batch = ", next.config.train.micro_batch);
  return next;
}

std::optional<Variation> more_stages(const tune::MemoryModel& model, Variation next, int i) {
  const int devices = next.plan.devices() + i + 1, stages = devices * next.plan.virtual_stages;
  if (stages > static_cast<int>(model.layers.size())) return std::nullopt;
  next.setting = pipeline::stages_setting(devices, listed_settings(next.config).partition);
  next.config.pipeline.stages = devices;
  next.config.pipeline.partition = std::nullopt;
  if (!next.config.pipeline.recompute.stages.empty()) {
    next.config.pipeline.recompute = {.all = next.plan.recompute_any() ? "layer" : "none", .stages = {}};
    next.setting += concat(" with pipeline.recompute = \"", next.config.pipeline.recompute.all, "\"");
  }
  next.plan.recompute.assign(stages, next.plan.recompute_any());
  next.plan.partition = {std::vector<int>(stages, 1)};
  next.plan.partition = tune::smallest_partition(model, next.plan);
  return next;
}

std::optional<Variation> recomputation(const tune::MemoryModel&, Variation next, int i) {
  if (i > 0 || next.plan.recompute_all()) return std::nullopt;
  next.plan.recompute.assign(next.plan.stages(), true);
  next.config.pipeline.recompute = {.all = "layer", .stages = {}};
  next.setting = "pipeline.recompute = \"layer\"";
  return next;
}

std::optional<Variation> smaller_batch(const tune::MemoryModel& model, Variation next, int i) {
  if (next.config.replicas.has_server() && has_the_batch_of_all(next.config)) return std::nullopt;
  next.plan.global_batch >>= std::min(i + 1, 60);  // global_batch is at most the size of the data set
  if (next.plan.global_batch == 0) return std::nullopt;
  (next.config.replicas.has_server() ? next.config.ps.worker_batch : next.config.train.global_batch) =
      next.plan.global_batch;
  if (next.config.train.micro_batch > 0)
    next.plan.chunks = configured_chunks(next.config, model.processes, next.plan.global_batch);
  if (next.plan.global_batch < std::int64_t{next.plan.replicas} * model.processes * next.plan.chunks)
    return std::nullopt;
  next.setting = concat(key_of_batch(next.config), " = ", next.plan.global_batch);
  return next;
}

config::Config settings_of(config::Config config, const Plan& plan) {
  config.pipeline.changes.clear();  // they are relative to the first plan
  config.pipeline.stages = plan.devices();
  config.pipeline.virtual_stages = plan.virtual_stages;
  if (plan.schedule_text.empty()) config.pipeline.schedule = plan.schedule;
  if (config.pipeline.chunks && config.train.micro_batch == 0) config.pipeline.chunks = plan.chunks;
  if (config.pipeline.partition) config.pipeline.partition = plan.partition.layers_per_stage;
  if (!config.pipeline.recompute.is_open()) config.pipeline.recompute = recompute_choice(plan);
  config.replicas.local = plan.replicas;
  return config;
}

constexpr std::array kVariations{more_chunks, smaller_micro_batch, recomputation, more_stages, smaller_batch};

}  // namespace

std::string less_memory(const config::Config& config) {
  if (!config.replicas.has_server()) return std::string(pipeline::kLessTrainingMemory);
  if (has_the_batch_of_all(config)) return "use more pipeline.chunks or more pipeline.stages";
  return concat("use a smaller ps.worker_batch, more ", key_of_chunks(config), " or more pipeline.stages");
}

tune::MemoryModel measure_memory_model(const Setup& setup) {
  constexpr std::int64_t kMost = 16;  // enough to run the kernels of larger ones
  return memory_model_of(measure::measure_layer_bytes(workload_of(setup), std::min(micro_batch_size(setup), kMost)),
                         setup);
}

std::string fitting_advice(const tune::MemoryModel& model, const Setup& setup, const Plan& plan) {
  const auto of_device = static_cast<std::uint64_t>(setup.config.device.memory_limit.bytes);
  const bool is_shared = pipeline::limit_of_slot(of_device, setup.devices) < of_device;
  const std::uint64_t limit = planned_memory(setup);
  const auto about = [&](const Candidate& candidate) {
    return concat("about ", human_bytes(candidate.bytes), is_shared ? " a place" : " a device");
  };
  std::vector<std::string> fitting;
  std::optional<Candidate> nearest;
  for (const auto& variation : kVariations) {
    const auto candidate = first_fitting(model, limit, [&](int i) {
      return variation(model, {.setting = {}, .config = setup.config, .plan = plan}, i);
    });
    if (!candidate) continue;
    if (candidate->bytes <= limit) fitting.push_back(concat(candidate->setting, " would need ", about(*candidate)));
    if (!nearest || candidate->bytes < nearest->bytes) nearest = candidate;
  }
  if (!fitting.empty()) return join(fitting, ", ");
  if (!nearest) return "no setting needs less";
  return concat("none of these fits by itself; ", nearest->setting, " is nearest with ", about(*nearest));
}

Error with_fitting_advice(const Error& error, const Setup& setup, const Plan& plan) {
  if (!pipeline::is_refused_by_limit(error) || setup.devices.front().kind != device::DeviceKind::kCpu) return error;
  // Logged first, because the measurement may exhaust the machine's memory.
  log_warning(error.what(), "; measuring which settings would fit");
  try {
    const Setup of_plan = with_settings(setup, settings_of(setup.config, plan));
    const char* const where =
        setup.config.pipeline.changes.empty() ? "" : " (pipeline.changes sets it for the plans that it names)";
    return OutOfMemoryError(
        concat(error.what(), ": ", fitting_advice(measure_memory_model(of_plan), of_plan, plan), where));
  } catch (const std::exception& no_measurement) {
    log_debug("cannot measure which settings would fit: ", no_measurement.what());
    return error;
  }
}

}  // namespace sluice::train
