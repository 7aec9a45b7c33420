#include "train/plan/plan_description.h"

#include <array>
#include <map>
#include <numeric>
#include <sstream>
#include <string_view>

#include "core/concat.h"
#include "core/divided_up.h"
#include "core/text.h"
#include "core/text_table.h"
#include "pipeline/schedule/plan_schedule.h"
#include "train/setup/server_settings.h"

namespace sluice::train {

using nlohmann::ordered_json;

namespace {

std::string schedule_text(const Setup& setup, const Plan& plan) {
  return plan.schedule_text.empty() ? plan.schedule : concat("order from ", printable(setup.config.pipeline.order));
}

ordered_json description_json(const Setup& setup, const engine::Composition& composition, int cpu_threads,
                              bool chunks_are_open, ordered_json stages) {
  const Plan& plan = composition.plan;
  ordered_json json{{"model", setup.model.name},
                    {"data", setup.train_set->info().name},
                    {"parameters", composition.parameter_count()},
                    {"stages", plan.devices()},
                    {"virtual", plan.virtual_stages},
                    {"replicas", plan.replicas},
                    {"processes", setup.process.processes},
                    {"schedule", schedule_text(setup, plan)},
                    {"chunks", chunks_are_open ? ordered_json("auto") : ordered_json(plan.chunks)},
                    {"global_batch", plan.global_batch},
                    {"cpu_threads", cpu_threads},
                    {"batches_per_epoch", setup.batches_per_epoch},
                    {"steps", setup.total_steps},
                    {"frozen_layers", plan.frozen_layers},
                    {"partition", plan.partition.layers_per_stage},
                    {"unused_devices", unused_devices(setup, plan.devices() * plan.replicas)},
                    {"stage_list", std::move(stages)}};
  if (!plan.shares.empty()) json["shares"] = plan.shares;
  if (setup.model.lora_rank > 0) json["trained_parameters"] = composition.trained_count();
  if (!setup.servers.empty()) json["servers"] = setup.servers;
  return json;
}

std::string headline(const Setup& setup, const engine::Composition& composition, int cpu_threads,
                     bool chunks_are_open) {
  const Plan& plan = composition.plan;
  const int processes = setup.process.processes, replicas = plan.replicas * processes;
  const bool has_server = setup.config.replicas.has_server();
  std::ostringstream text;
  text << setup.model.name << " (" << composition.parameter_count() << " parameters"
       << (setup.model.lora_rank > 0 ? concat(", ", composition.trained_count(), " of them trained") : "") << ") on "
       << setup.train_set->info().name << ": " << setup.train_set->size() << " training and " << setup.test_set->size()
       << " test samples, "
       << (has_server ? counted(setup.steps_per_epoch, "update") : counted(setup.batches_per_epoch, "batch"))
       << " an epoch, " << counted(setup.total_steps, has_server ? "update" : "step") << "\n"
       << counted(plan.stages(), "stage")
       << (plan.virtual_stages > 1 ? concat(" on ", counted(plan.devices(), "device")) : "") << " x " << plan.replicas
       << (plan.replicas == 1 ? " replica" : " local replicas")
       << (processes > 1 ? concat(" x ", processes, " processes") : "") << ", schedule " << schedule_text(setup, plan)
       << ", chunks " << (chunks_are_open ? "chosen by measurement at the start" : std::to_string(plan.chunks))
       << (has_server ? ", batch of a worker " : ", global batch ") << plan.global_batch << " ("
       << (plan.shares.empty() ? concat(divided_up(plan.global_batch, replicas), " a replica")
                               : concat("shares ", percentages(plan.shares)))
       << "), " << counted(cpu_threads, "thread") << " a CPU device";
  if (const std::string server = describe_server(setup); !server.empty()) text << "\n" << server;
  return std::move(text).str();
}

}  // namespace

namespace {

std::int64_t parameters_in(const pipeline::FlatParameters& parameters) {
  std::int64_t count = 0;
  for (const auto& entry : parameters.entries()) count += entry.tied_to.empty() ? entry.numel : 0;
  return count;
}

// Includes copies of tied values. Excludes padding: in memory each parameter begins at a multiple of 64.
std::uint64_t value_bytes(const pipeline::FlatParameters& parameters) {
  std::uint64_t bytes = 0;
  for (const auto& entry : parameters.entries())
    bytes += static_cast<std::uint64_t>(entry.numel) * parameters.values().element_size();
  return bytes;
}

std::string span_of(const pipeline::LayerList& layers) {
  if (layers.size() == 1) return layers.front()->name();
  return concat(layers.front()->name(), " .. ", layers.back()->name(), " (", layers.size(), ")");
}

TextRow frozen_row(const pipeline::FrozenPrefix& frozen) {
  return {"frozen", span_of(frozen.layers()), std::to_string(parameters_in(frozen.parameters())),
          std::to_string(value_bytes(frozen.parameters())), "all, each with a share of the samples"};
}

}  // namespace

std::string layers_in_words(const Partition& partition) {
  std::vector<std::string> layers;
  for (const int count : partition.layers_per_stage) layers.push_back(std::to_string(count));
  return join(layers, " ");
}

std::string percentages(const std::vector<int>& shares) {
  const double sum = std::accumulate(shares.begin(), shares.end(), 0.0);
  std::vector<std::string> texts;
  for (const int share : shares) texts.push_back(percent(share / sum));
  return join(texts, " ");
}

std::string in_words(const Plan& plan) {
  return concat(counted(plan.stages(), "stage"),
                plan.virtual_stages > 1 ? concat(" on ", counted(plan.devices(), "device")) : "", " x ",
                counted(plan.replicas, "replica"),
                plan.schedule_text.empty() ? concat(", schedule ", plan.schedule) : ", by pipeline.order", ", ",
                counted(plan.chunks, "chunk"), ", layers ",
                plan.frozen_layers > 0 ? concat(plan.frozen_layers, " frozen + ") : "", layers_in_words(plan.partition),
                plan.recompute_any() ? ", recomputes" : "",
                plan.shares.empty() ? "" : concat(", shares ", percentages(plan.shares)));
}

namespace {

// How often the layers of a model from a file call which of our layers, and of LibTorch's operators.
std::map<std::string, int> calls_of(const engine::Composition& composition) {
  std::map<std::string, int> calls;
  const auto add = [&](const pipeline::LayerList& layers) {
    for (const auto& layer : layers)
      for (const auto& [name, count] : layer->calls()) calls[name] += count;
  };
  if (!composition.executor->prefixes().empty()) add(composition.executor->prefixes().front()->layers());
  for (int s = 0; s < composition.plan.stages(); ++s)
    add(composition.executor->stage(ReplicaId{0}, StageId{s}).layers());
  return calls;
}

std::string calls_text(const std::map<std::string, int>& calls) {
  constexpr std::string_view kOfLibTorch = "aten::";
  std::vector<std::string> own;
  int others = 0;
  for (const auto& [name, count] : calls) {
    if (name.starts_with(kOfLibTorch)) {
      others += count;
    } else {
      own.push_back(concat(name, " ", count));
    }
  }
  return concat("\ncomputed by layers of Sluice: ", own.empty() ? "nothing" : join(own, ", "), "; by ",
                counted(others, "operator"), " of LibTorch");
}

}  // namespace

PlanDescription describe_plan(const Setup& setup, const engine::Composition& composition, bool chunks_are_open) {
  const Plan& plan = composition.plan;
  ordered_json stages = ordered_json::array();
  std::vector<TextRow> rows{{"stage", "layers", "parameters", "bytes", "devices"}};
  if (plan.frozen_layers > 0) rows.push_back(frozen_row(*composition.executor->prefixes().front()));
  const std::vector<int> owners = pipeline::stage_owners(plan);
  const auto [slot_devices, cpu_threads] = devices_for(setup, plan.devices() * plan.replicas);
  for (int s = 0; s < plan.stages(); ++s) {
    const pipeline::Stage& stage = composition.executor->stage(ReplicaId{0}, StageId{s});
    std::vector<std::string> layers, devices;
    for (const auto& layer : stage.layers()) layers.push_back(layer->name());
    for (int r = 0; r < plan.replicas; ++r)
      devices.push_back(device::to_string(slot_devices[r * plan.devices() + owners[s]]));
    const std::int64_t parameters = parameters_in(stage.parameters());
    const std::uint64_t bytes = value_bytes(stage.parameters());
    stages.push_back({{"stage", s},
                      {"layers", layers},
                      {"parameters", parameters},
                      {"bytes", bytes},
                      {"recomputes", plan.recomputes(s)},
                      {"devices", devices}});
    rows.push_back({std::to_string(s), span_of(stage.layers()), std::to_string(parameters), std::to_string(bytes),
                    concat(join(devices, " "), plan.recomputes(s) ? ", recomputes" : "")});
  }
  constexpr Align kLeft = Align::kLeft, kRight = Align::kRight;
  std::string text = concat(headline(setup, composition, cpu_threads, chunks_are_open), "\n",
                            text_table(rows, std::array{kLeft, kLeft, kRight, kRight, kLeft}, /*gap=*/2));
  if (const auto unused = unused_devices(setup, plan.devices() * plan.replicas); !unused.empty())
    text += concat("\nthe first ", setup.config.device.list.names.size() - unused.size(),
                   " entries of device.list are used, not ", join(unused, ", "));
  ordered_json json = description_json(setup, composition, cpu_threads, chunks_are_open, std::move(stages));
  if (const std::map<std::string, int> calls = calls_of(composition); !calls.empty()) {
    text += calls_text(calls);
    json["calls"] = calls;
  }
  return {std::move(json), std::move(text)};
}

}  // namespace sluice::train
