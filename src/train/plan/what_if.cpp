#include "train/plan/what_if.h"

#include <algorithm>
#include <memory>

#include <nlohmann/json.hpp>

#include "core/concat.h"
#include "core/error.h"
#include "core/ids.h"
#include "core/log.h"
#include "core/text.h"
#include "device/device.h"
#include "measure/fingerprint_of.h"
#include "models/model.h"
#include "models/text_config.h"
#include "pipeline/schedule/plan_schedule.h"
#include "train/plan/freeze_plans.h"
#include "train/plan/plan_settings.h"
#include "train/plan/predicted_server.h"
#include "train/plan/profile_overheads.h"
#include "train/setup/setup.h"
#include "tune/memory_model.h"

namespace sluice::train {
namespace {

using profiler::LayerProfile;

std::string device_at(const config::Config& config, const LayerProfile& profile, int slot) {
  const std::vector<std::string>& names = config.device.list.names;
  if (slot < std::ssize(names)) return device::to_string(device::parse_device(names[static_cast<std::size_t>(slot)]));
  return concat(is_of_cpu(profile) ? "cpu:" : "cuda:", slot);
}

// The link between these devices; else the first between the same kinds (CPU, GPU); else the first. Requires: any link.
const LinkCost& link_between(const LayerProfile& profile, const std::string& one, const std::string& other) {
  const auto measured_as = [&](const auto& word) -> const LinkCost* {
    for (const profiler::StageLink& link : profile.stage_links) {
      const auto from = word(link.from_device), to = word(link.to_device);
      if ((from == word(one) && to == word(other)) || (from == word(other) && to == word(one))) return &link.cost;
    }
    return nullptr;
  };
  if (const LinkCost* const same = measured_as([](const std::string& name) { return name; })) return *same;
  if (const LinkCost* const kind = measured_as([](const std::string& name) { return name.substr(0, name.find(':')); }))
    return *kind;
  return profile.stage_links.front().cost;
}

std::vector<LinkCost> borders_of(const config::Config& config, const LayerProfile& profile, const Plan& plan) {
  std::vector<LinkCost> borders(plan.stages());
  if (profile.stage_links.empty()) return borders;
  const std::vector<int> owners = pipeline::stage_owners(plan);
  for (int s = 0; s + 1 < plan.stages(); ++s) {
    if (owners[s] == owners[s + 1]) continue;
    borders[s] =
        link_between(profile, device_at(config, profile, owners[s]), device_at(config, profile, owners[s + 1]));
  }
  return borders;
}

std::string difference_message(const std::string& file, const std::string& what, const std::string& measured,
                               const std::string& wanted) {
  return concat("the profile ", file, " was measured with ", what, " ", measured, ", but the configuration has ",
                wanted, "; run `sluice profile` with this configuration");
}

std::string word_of(bool is) { return is ? "true" : "false"; }

// An edited profile, or one of another version, may have other layers.
void check_layers(const config::Config& config, const LayerProfile& profile, const std::string& file) {
  const models::Model model = models::make_without_values(measured_model(config, profile));
  if (model.layers.size() != profile.layers.size())
    throw ConfigError("the profile ", file, " has ", counted(std::ssize(profile.layers), "layer"), ", but ",
                      profile.fingerprint.model.name, " has ", model.layers.size(),
                      "; measure again with `sluice profile`");
}

void check_model_files(const config::Config& config, const ModelSpec& own, const std::string& file) {
  if (!config.model.config.empty() && models::read_text_config(config.model.config)->text != own.config)
    throw ConfigError(difference_message(file, "model.config", "another file", config.model.config));
  if (!config.model.file.empty() && measure::digest_of_model(config.model.file) != own.file)
    throw ConfigError(difference_message(file, "model.file", "another file", config.model.file));
}

// Both have the same keys of [model], as far as both have one.
void check_model(const config::Config& config, const LayerProfile& profile, const std::string& file) {
  const ModelSpec& own = profile.fingerprint.model;
  const auto require_same = [&](const std::string& what, const std::string& measured, const std::string& wanted) {
    if (measured != wanted) throw ConfigError(difference_message(file, "model." + what, measured, wanted));
  };
  require_same("name", own.name, config.model.name);
  for_each_key(
      [&](const std::string& key, const auto& measured, const auto& wanted) {
        using Value = std::decay_t<decltype(wanted)>;
        if constexpr (std::is_same_v<Value, int>) {
          if (wanted != 0 && measured != 0) require_same(key, concat(measured), concat(wanted));
        } else if constexpr (std::is_same_v<Value, std::string>) {
          if (key != "config" && key != "file" && !wanted.empty() && !measured.empty())
            require_same(key, measured, wanted);
        }
      },
      own, config.model);
  require_same("lora_rank", concat(own.lora_rank), concat(config.model.lora_rank));
  require_same("lora_targets", join(own.lora_targets, ", "), join(config.model.lora_targets, ", "));
  check_model_files(config, own, file);
}

void check_fits(const config::Config& config, const LayerProfile& profile, const std::string& file) {
  const profiler::Fingerprint& print = profile.fingerprint;
  const auto require_same = [&](const std::string& what, const std::string& measured, const std::string& wanted) {
    if (measured != wanted) throw ConfigError(difference_message(file, what, measured, wanted));
  };
  check_model(config, profile, file);
  require_same("train.precision", print.precision, config.train.precision);
  require_same("train.optimizer", print.optimizer, config.train.optimizer);
  require_same("pipeline.batch_norm", print.batch_norm, config.pipeline.batch_norm);
  if (print.tf32) require_same("device.tf32", word_of(*print.tf32), word_of(config.device.tf32));
  if (freezes(config)) require_untied(config, measured_model(config, profile), /*frozen_layers=*/1);
  check_layers(config, profile, file);
  if (!is_of_cpu(profile)) return;
  require_same("train.winograd", print.winograd.value_or("2x2"), config.train.winograd);
  const int threads = threads_of_device(config, profile);
  if (print.threads_per_device != threads) {
    throw ConfigError("the profile ", file, " is of ", counted(print.threads_per_device, "thread"),
                      " a device, but the plan has ", threads, "; set device.threads = ", print.threads_per_device,
                      ", or measure again with this plan's devices");
  }
}

}  // namespace

models::ModelOptions measured_model(const config::Config& config, const LayerProfile& profile) {
  models::ModelOptions model(profile.fingerprint.model);
  model.file = config.model.file;
  if (model.config.empty()) return model;
  const auto fields = nlohmann::json::parse(model.config, nullptr, /*allow_exceptions=*/false);
  model.text = std::make_shared<models::TextConfig>(models::parse_text_config(fields, "model.config of the profile"));
  model.config.clear();
  return model;
}

int threads_of_device(const config::Config& config, const LayerProfile& profile) {
  if (config.device.threads > 0) return config.device.threads;
  return std::max(1, profile.fingerprint.cores / (config.pipeline.stages * config.replicas.local));
}

LayerProfile fitted_profile(const config::Config& config, LayerProfile profile, const std::string& file) {
  check_fits(config, profile, file);
  if (!profile.load || loads_as_measured(config, profile)) return profile;
  log_warning("the profile ", file,
              " measured loading with other samples than [data] selects; the prediction leaves loading out");
  profile.load.reset();
  return profile;
}

tune::PlanRequest request_by_profile(const config::Config& config, const LayerProfile& profile, int processes) {
  const config::PipelineConfig& pipeline = config.pipeline;
  if (!pipeline.order.empty())
    throw ConfigError("pipeline.order has no prediction; remove it and set pipeline.schedule");
  const std::int64_t batch = config::step_batch(config);
  const auto layers = static_cast<int>(profile.layers.size());
  const tune::PlanRequest request =
      plan_request(config, {.plan = {.replicas = config.replicas.local,
                                     .chunks = configured_chunks(config, processes, batch),
                                     .global_batch = batch,
                                     .schedule = pipeline.schedule,
                                     .virtual_stages = virtual_stages(config)},
                            .replicas = config.replicas.local * processes,
                            .layers = layers,
                            .memory_limit = static_cast<std::uint64_t>(config.device.memory_limit.bytes) / 10 * 9,
                            .shares_memory = is_of_cpu(profile)});
  if (request.stages() > layers)
    throw ConfigError("pipeline.stages = ", pipeline.stages, " with ", request.plan.virtual_stages,
                      " stages a device make ", request.stages(), " stages, but the profile has ",
                      counted(layers, "layer"), "; use fewer stages");
  check_partition(config, layers);
  return request;
}

tune::StepOverheads overheads_by_profile(const config::Config& config, const LayerProfile& profile, const Plan& plan,
                                         int processes) {
  tune::StepOverheads costs = step_overheads(config, profile, plan.replicas, processes, is_of_cpu(profile));
  costs.borders = borders_of(config, profile, plan);
  costs.loading = loading_of(config, profile, plan, processes);
  costs.server = server_use(config, profile);
  if (costs.server) costs.update.reset();
  if (costs.server && costs.server->cores > 0) costs.replicas_on_machine *= costs.server->workers;
  return costs;
}

tune::StepPrediction predict_by_profile(const config::Config& config, const LayerProfile& profile, const Plan& plan,
                                        int processes, const PredictionScope& scope) {
  tune::StepOverheads overheads = overheads_by_profile(config, profile, plan, processes);
  // A server's workers are already counted.
  if (!overheads.server) overheads.runnable *= scope.cores_share;
  if (!scope.with_loading) overheads.loading.reset();
  const double replica_samples = static_cast<double>(plan.global_batch) / (plan.replicas * processes);
  return tune::predict_step(plan, profile.costs_at(tune::largest_micro_batch(plan, processes)), replica_samples,
                            overheads);
}

WhatIf what_if(const config::Config& configured, const LayerProfile& profile, int processes) {
  config::Config config = configured;
  settle_worker(config);
  const tune::PlanRequest request = request_by_profile(config, profile, processes);
  if (request.replicas > 1 && profile.all_reduce_of(processes, config.replicas.local) == nullptr)
    log_warning("the profile has no sums over ", counted(request.replicas, "replica"), " in ",
                counted(processes, "process"), "; the prediction counts them as 0 s");
  const auto costs_of = [&](const Plan& plan) { return profile.costs_at(tune::largest_micro_batch(plan, processes)); };
  const std::vector<LayerCost> layers = costs_of(request.plan);
  const tune::StepOverheads overheads = overheads_by_profile(config, profile, request.uncut(), processes);
  WhatIf answer{.plan = tune::make_plan(request, layers, overheads),
                .memory_limit = static_cast<std::uint64_t>(config.device.memory_limit.bytes)};
  answer.step = predict_by_profile(config, profile, answer.plan, processes);
  answer.samples_per_s = static_cast<double>(answer.plan.global_batch) / answer.step.seconds;
  if (overheads.server) {
    answer.samples_per_s *= overheads.server->workers;
    double bytes = 0;
    for (const LayerCost& layer : layers) bytes += static_cast<double>(layer.gradient_bytes);
    answer.network_bytes = transferred_bytes(config, bytes);
  }
  const tune::MemoryModel memory{costs_of(answer.plan), is_of_cpu(profile), processes};
  answer.device_bytes = tune::estimate_device_bytes(memory, answer.plan).value_or(std::vector<std::uint64_t>());
  return answer;
}

std::string memory_excess(const WhatIf& answer) {
  if (answer.memory_limit == 0 || answer.device_bytes.empty()) return "";
  const auto most = std::ranges::max_element(answer.device_bytes);
  if (*most <= answer.memory_limit) return "";
  return concat("device ", most - answer.device_bytes.begin(), " needs ", human_bytes(*most), " of ",
                human_bytes(answer.memory_limit));
}

}  // namespace sluice::train
