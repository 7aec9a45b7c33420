#include "train/study/configured_plan.h"

#include <utility>

#include "core/concat.h"
#include "core/error.h"
#include "core/text.h"
#include "train/plan/profile_overheads.h"
#include "train/plan/what_if.h"
#include "train/setup/setup.h"

namespace sluice::train {
namespace {

ConfiguredPlan without_prediction(std::string why) { return {.predicted = {}, .not_predicted = std::move(why)}; }

}  // namespace

ConfiguredPlan predict_configured(const config::Config& config, const profiler::Profiles& profiles) {
  if (chunks_are_open(config)) return without_prediction("pipeline.chunks = \"auto\" is decided at the start of a run");
  const profiler::LayerProfile& profile = profiles.of_slots(config.pipeline.stages * config.replicas.local);
  const int threads = threads_of_device(config, profile);
  if (is_of_cpu(profile) && profile.fingerprint.threads_per_device != threads)
    return without_prediction(concat("there is no profile with ", counted(threads, "thread"), " a device"));
  try {
    WhatIf answer = what_if(config, profile);
    if (std::string why = memory_excess(answer); !why.empty()) return without_prediction(std::move(why));
    return {.predicted = tune::Candidate{.plan = std::move(answer.plan),
                                         .step = std::move(answer.step),
                                         .samples_per_s = answer.samples_per_s,
                                         .device_bytes = std::move(answer.device_bytes)}};
  } catch (const ConfigError& error) {
    return without_prediction(error.what());
  }
}

bool is_same_plan(Plan one, Plan other) {
  for (Plan* const plan : {&one, &other})
    if (!plan->recompute_any()) plan->recompute.clear();
  return one == other;
}

}  // namespace sluice::train
