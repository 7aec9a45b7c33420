#include "train/study/verify_plans.h"

#include <algorithm>
#include <utility>

#include "core/concat.h"
#include "core/error.h"
#include "core/log.h"
#include "core/text.h"
#include "train/plan/plan_settings.h"
#include "train/plan/profile_overheads.h"
#include "train/plan/what_if.h"
#include "train/setup/setup.h"

namespace sluice::train {
namespace {

constexpr double kMostTimesLonger = 4;  // than expected: the run hangs
constexpr double kFarOff = 1.5;         // ratio to the prediction, in either direction
constexpr Measuring kHow{};
constexpr int kRunSteps = kHow.warm_up + kHow.steps;

std::vector<tune::PlanRun> plan_runs(const std::vector<VerifiedPlan>& verified) {
  std::vector<tune::PlanRun> runs;
  for (const VerifiedPlan& one : verified) runs.push_back(one.as_run());
  return runs;
}

bool is_far_off(const MeasuredSteps& measured, const tune::Candidate& candidate) {
  if (!measured.failure.empty()) return false;
  const double ratio = measured.step_s / candidate.step.seconds;
  return ratio > kFarOff || ratio < 1 / kFarOff;
}

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

config::Config with_plan(config::Config config, const Plan& plan, int threads) {
  config.pipeline.stages = plan.devices();
  config.pipeline.virtual_stages = plan.virtual_stages;
  config.pipeline.chunks = plan.chunks;
  config.pipeline.schedule = plan.schedule;
  config.pipeline.partition = plan.partition.layers_per_stage;
  config.pipeline.recompute = recompute_choice(plan);
  config.replicas.local = plan.replicas;
  config.train.micro_batch = 0;
  config.train.reproducible = "off";  // it needs a micro-batch
  if (threads > 0) config.device.threads = threads;
  return config;
}

void PlanRuns::run_best(const std::vector<tune::Candidate>& best, int most) {
  while (std::ssize(done_) < most) {
    const tune::Candidate* const candidate = tune::next_to_run(best, plan_runs(done_));
    if (candidate == nullptr) break;
    const std::string which = concat("plan ", done_.size() + 1, " of ", std::min<std::size_t>(most, best.size()));
    const auto ran = run_within_budget(config_, *candidate, which);
    if (const auto* const why_not = std::get_if<std::string>(&ran)) {
      left_out_ = concat(which, " was not run: ", *why_not);
      log_warning(left_out_);
      break;
    }
    const auto& measured = std::get<MeasuredSteps>(ran);
    if (!measured.failure.empty()) log_warning("the plan failed: ", measured.failure);
    done_.push_back({*candidate, measured});
  }
}

void PlanRuns::run_configured(const config::Config& configured, ConfiguredPlan& plan) {
  if (!plan.predicted || done_.empty()) return;
  const auto same = std::ranges::find_if(
      done_, [&](const VerifiedPlan& one) { return is_same_plan(one.predicted.plan, plan.predicted->plan); });
  if (same != done_.end()) {
    plan.measured = same->measured;
    return;
  }
  const auto ran = run_within_budget(configured, *plan.predicted, "the plan as configured");
  if (const auto* const why_not = std::get_if<std::string>(&ran))
    plan.not_run = *why_not;
  else
    plan.measured = std::get<MeasuredSteps>(ran);
}

std::variant<MeasuredSteps, std::string> PlanRuns::run_within_budget(const config::Config& config,
                                                                     const tune::Candidate& candidate,
                                                                     const std::string& which) {
  const double expected = start_s_ + kRunSteps * candidate.step.seconds, left = budget_.left();
  if (expected > left)
    return concat("it would take about ", human_duration(expected), ", but only ", human_duration(left),
                  " of --budget are left");
  log_info("running ", which, ": predicted ", fixed(candidate.step.seconds * 1e3, 1), " ms a step");
  const double limit = std::min(left, kMostTimesLonger * expected);
  MeasuredSteps measured = measure(config, candidate, limit);
  if (measured.timed_out && limit == left)
    return concat("it was still running when --budget ended, after ", human_duration(left));
  if (is_far_off(measured, candidate)) return again(config, candidate, which, std::move(measured));
  return measured;
}

// Keeps the faster of two runs: other programs can only slow a run down.
MeasuredSteps PlanRuns::again(const config::Config& config, const tune::Candidate& candidate, const std::string& which,
                              MeasuredSteps first) {
  const std::string took = concat(which, " took ", fixed(first.step_s * 1e3, 1), " ms a step, but ",
                                  fixed(candidate.step.seconds * 1e3, 1), " ms are predicted");
  const double expected = start_s_ + kRunSteps * first.step_s, left = budget_.left();
  if (expected > left) {
    log_warning(took, ", and --budget leaves no time to run it again; was the machine busy?");
    return first;
  }
  log_info(took, "; running it again");
  MeasuredSteps second = measure(config, candidate, std::min(left, kMostTimesLonger * expected));
  MeasuredSteps faster = second.failure.empty() && second.step_s < first.step_s ? std::move(second) : std::move(first);
  if (is_far_off(faster, candidate))
    log_warning(which, " takes ", fixed(faster.step_s * 1e3, 1), " ms a step, far from the prediction: the ",
                "machine is busy, or was busy during the measurement of the layers; tune again on a quiet machine");
  return faster;
}

MeasuredSteps PlanRuns::measure(const config::Config& config, const tune::Candidate& candidate, double limit_s) {
  const int slots = candidate.plan.devices() * candidate.plan.replicas;
  const int threads = on_cpu(config) ? profiles_.threads_of(slots) : 0;
  Measuring how = kHow;
  how.limit_s = limit_s;
  const double begin = budget_.used();
  MeasuredSteps measured = run_(with_plan(config, candidate.plan, threads), how);
  if (measured.failure.empty()) start_s_ = std::max(0.0, budget_.used() - begin - kRunSteps * measured.step_s);
  return measured;
}

}  // namespace sluice::train
