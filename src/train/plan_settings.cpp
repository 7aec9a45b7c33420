#include "train/plan_settings.h"

#include <iterator>
#include <utility>

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

}  // namespace sluice::train
