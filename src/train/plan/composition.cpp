#include "train/plan/composition.h"

#include <algorithm>
#include <cmath>

#include "data/fields.h"
#include "device/graph.h"
#include "models/model.h"
#include "train/plan/freeze_planner.h"
#include "train/plan/memory_advice.h"
#include "train/setup/model_options.h"

namespace sluice::train {
namespace {

engine::GroupOptions group_options(const config::TrainConfig& train) {
  const auto decays = [&](const char* role) { return std::ranges::find(train.no_decay, role) == train.no_decay.end(); };
  return {.decays_norms = decays("norm"),
          .decays_biases = decays("bias"),
          .decays_positions = decays("position"),
          .classifier_lr_factor = train.head_lr};
}

engine::ComposeOptions compose_options(const Setup& setup, comm::Processes* processes) {
  const config::Config& config = setup.config;
  engine::ComposeOptions options{
      .model_name = setup.model.name,
      .make_layers = [&setup] { return models::make_model(setup.model).layers; },
      .step_timeout = std::chrono::milliseconds(std::llround(std::ceil(config.train.step_timeout_s * 1000))),
      .record_spans = config.profile.level != "off",
      .numerics = numerics_of(config),
      .bucket_bytes = static_cast<std::size_t>(config.replicas.bucket_mb * 1024 * 1024),
      .sends_bf16 = config.replicas.bucket_type == "bf16",
      .optimizer = optimizer_options(config),
      .groups = group_options(config.train),
      .memory_limit = static_cast<std::uint64_t>(config.device.memory_limit.bytes),
      .listed = listed_settings(config)};
  if (processes != nullptr)
    options.communicators = std::make_shared<engine::Communicators>(*processes, collectives_of(config));
  return options;
}

engine::TrainStepOptions step_options(const Setup& setup) {
  const bool is_text = setup.train_set != nullptr && setup.train_set->info().kind == SampleKind::kTokens;
  return {.task = setup.task,
          .seed = setup.config.train.seed,
          .numerics = numerics_of(setup.config),
          .clip_norm = setup.config.train.clip_norm,
          .micro_batch = setup.config.train.is_reproducible_by_layout() ? setup.config.train.micro_batch : 0,
          .padding_mask = is_text && setup.config.data.pad == "longest" ? data::kMask : "",
          .rounds_to_bf16 = setup.config.replicas.bucket_type == "bf16",
          .sums_gradients = freeze::needs_gradients(policy_of(setup)),
          .memory_is_limited = setup.config.device.memory_limit.bytes > 0,
          .less_memory = less_memory(setup.config),
          .explain_memory = [&setup](const Error& error,
                                     const Plan& plan) { return with_fitting_advice(error, setup, plan); },
          .make_graphs = setup.config.device.cuda_graphs ? device::GraphFactory(device::make_graph_sequence) : nullptr};
}

}  // namespace

engine::EngineOptions engine_options(const Setup& setup, comm::Processes* processes,
                                     std::shared_ptr<pipeline::FeatureSource> features, engine::SyncFactory make_sync) {
  engine::ComposeOptions compose = compose_options(setup, processes);
  compose.make_sync = std::move(make_sync);
  compose.features = std::move(features);
  const auto devices_of = [&setup](const Plan& plan) {
    engine::DeviceChoice choice = devices_for(setup, plan.devices() * plan.replicas);
    if (setup.config.device.cuda_graphs) device::require_graphs(choice.devices);
    return choice;
  };
  return {.compose = std::move(compose),
          .make_layers_without_values = [&setup] { return models::make_without_values(setup.model).layers; },
          .step = step_options(setup),
          .devices_of = devices_of};
}

}  // namespace sluice::train
