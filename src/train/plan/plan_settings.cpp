#include "train/plan/plan_settings.h"

#include <iterator>
#include <utility>

#include "train/setup/setup.h"

namespace sluice::train {

tune::PlanRequest plan_request(const config::Config& config, PlanFacts facts) {
  const config::PipelineConfig& pipeline = config.pipeline;
  const config::RecomputeChoice& recompute = pipeline.recompute;
  tune::PlanRequest request{.plan = std::move(facts.plan),
                            .devices = pipeline.stages,
                            .replicas = facts.replicas,
                            .layers = facts.layers,
                            .chunks_are_open = !pipeline.chunks && config.train.micro_batch == 0,
                            .memory_limit = facts.memory_limit,
                            .shares_memory = facts.shares_memory};
  if (recompute.is_open()) request.recompute = tune::Recompute::kOpen;
  if (recompute.all == "layer") request.recompute = tune::Recompute::kLayer;
  for (int s = 0; s < std::ssize(recompute.stages); ++s) request.recompute_of_stage.push_back(recomputes(recompute, s));
  if (pipeline.partition) request.partition = Partition{*pipeline.partition};
  return request;
}

bool recomputes(const config::RecomputeChoice& choice, int stage) {
  return (choice.stages.empty() ? choice.all : choice.stages.at(stage)) == "layer";
}

config::RecomputeChoice recompute_choice(const Plan& plan) {
  if (!plan.recompute_any()) return {.all = "none", .stages = {}};
  if (plan.recompute_all()) return {.all = "layer", .stages = {}};
  config::RecomputeChoice choice{.all = "", .stages = {}};
  for (int s = 0; s < plan.stages(); ++s) choice.stages.emplace_back(plan.recomputes(s) ? "layer" : "none");
  return choice;
}

namespace {

// An open plan was chosen for a limit.
bool limit_agrees(const config::Config& config, const config::Config& was) {
  const bool is_open = !config.pipeline.partition || config.pipeline.recompute.is_open() || config.pipeline.replans();
  return !is_open || was.device.memory_limit == config.device.memory_limit;
}

bool recompute_agrees(const config::Config& config, const config::Config& was, const Plan& saved) {
  const config::RecomputeChoice& recompute = config.pipeline.recompute;
  if (recompute.is_open()) return was.pipeline.recompute.is_open();
  if (!recompute.stages.empty() && std::ssize(recompute.stages) != saved.stages()) return false;
  for (int s = 0; s < saved.stages(); ++s)
    if (saved.recomputes(s) != recomputes(recompute, s)) return false;
  return true;
}

// A partition that was set then and is open now is decided again. pipeline.replan may have changed the saved one.
bool partition_agrees(const config::Config& config, const config::Config& was, const Plan& saved) {
  const auto& wanted = config.pipeline.partition;
  if (config.pipeline.replans()) return was.pipeline.partition == wanted;
  if (wanted) return *wanted == saved.partition.layers_per_stage;
  return saved.stages() == 1 || (!was.pipeline.partition && !was.pipeline.replans());
}

bool chunks_agree(const config::Config& config, const config::Config& was, int processes, const Plan& saved) {
  if (chunks_are_open(config)) return chunks_are_open(was);
  return configured_chunks(config, processes, saved.global_batch) == saved.chunks;
}

}  // namespace

bool plan_can_be_kept(const config::Config& config, const config::Config& was, int processes, const Plan& saved,
                      const std::string& schedule_text) {
  const bool schedule_agrees =
      saved.schedule_text == schedule_text && (!schedule_text.empty() || saved.schedule == config.pipeline.schedule);
  return saved.frozen_layers == 0 && saved.devices() == config.pipeline.stages &&
         saved.virtual_stages == virtual_stages(config) && saved.replicas == config.replicas.local && schedule_agrees &&
         partition_agrees(config, was, saved) && chunks_agree(config, was, processes, saved) &&
         limit_agrees(config, was) && recompute_agrees(config, was, saved);
}

}  // namespace sluice::train
