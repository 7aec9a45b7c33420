#include "train/choose_plan.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/concat.h"
#include "core/error.h"
#include "core/log.h"
#include "core/text.h"
#include "train/cost_cache.h"
#include "train/measure_layers.h"
#include "train/state_memory.h"
#include "train/train_schedule.h"
#include "tune/partition.h"

namespace sluice::train {
namespace {

tune::Recompute recompute_rule(const Setup& setup) {
  if (setup.config.pipeline.recompute == "auto") return tune::Recompute::kOpen;
  return setup.config.pipeline.recompute == "layer" ? tune::Recompute::kLayer : tune::Recompute::kNone;
}

double mean_micro_batch(const Setup& setup, const Plan& plan) {
  return static_cast<double>(setup.global_batch) / count_replicas(setup) / plan.chunks;
}

struct Choice {
  tune::CutRules rules;
  tune::Cut cut;
};

Choice choose_cut(const Setup& setup, const Plan& plan, const std::vector<LayerCost>& costs) {
  const double micro_batch = mean_micro_batch(setup, plan);
  tune::CutRules rules{.micro_batch = micro_batch,
                       .most_samples = static_cast<std::uint64_t>(std::ceil(micro_batch)),
                       .recompute = recompute_rule(setup),
                       .memory_limit = planned_memory(setup),
                       .shares_memory = shares_memory(setup)};
  if (setup.config.pipeline.partition) rules.partition = Partition{*setup.config.pipeline.partition};
  const pipeline::Schedule schedule = make_train_schedule(plan, plan.chunks);
  return {rules, tune::best_cut(costs, schedule, rules)};
}

// raise_chunks: they are not as many as there may be.
void warn_of_doubts(const Plan& plan, const std::vector<LayerCost>& costs, const Choice& choice, bool raise_chunks) {
  const auto& [rules, cut] = choice;
  if (!cut.fits && !cut.is_proven) {
    log_warning(concat("no cut that is estimated to fit was found in ", tune::kMostTries,
                       " tries; the one that needs least is tried"));
  } else if (!cut.fits) {
    const auto peaks = tune::device_peaks(costs, make_train_schedule(plan, plan.chunks), cut.partition, cut.recompute,
                                          rules.most_samples, rules.shares_memory);
    log_warning(concat("no cut into ", counted(plan.stages(), "stage"), " is estimated to fit ",
                       human_bytes(rules.memory_limit), " a place; the one that needs least takes about ",
                       human_bytes(std::ranges::max(peaks)), " and is tried; raise ",
                       raise_chunks ? "pipeline.chunks or " : "", "pipeline.stages",
                       rules.recompute == tune::Recompute::kNone ? ", or set pipeline.recompute = \"auto\"" : ""));
  }
  if (cut.fits && !cut.is_proven)
    log_info(concat("the search for the best cut was given up after ", tune::kMostTries,
                    " tries; a slightly better one may exist"));
}

// With chunks left open under a memory limit: the first number, from the plan's own on, for which some cut fits.
Choice choose_cut_and_chunks(const Setup& setup, Plan& plan, const std::vector<LayerCost>& costs) {
  constexpr int kMostDoublings = 6;
  Choice first = choose_cut(setup, plan, costs);
  if (first.cut.fits || !chunks_are_open(setup.config)) return first;
  const int configured = plan.chunks;
  for (int i = 0; i < kMostDoublings && 2 * plan.chunks <= setup.global_batch / count_replicas(setup); ++i) {
    plan.chunks *= 2;
    if (Choice more = choose_cut(setup, plan, costs); more.cut.fits) return more;
  }
  plan.chunks = configured;
  return first;
}

// The whole model on one device, which may have room for a smaller micro-batch only; and the time, too.
profiler::LayerProfile measure_what_fits(const Setup& setup, std::int64_t size) {
  try {
    auto layers = measure_layers(setup, {.sizes = {size},
                                         .least_rounds = 1,
                                         .most_rounds = 3,
                                         .budget_s = layers_budget(setup),
                                         .fits_budget = true,
                                         .needed_size = size});
    return {.micro_batch = layers.front().times.front().samples, .layers = std::move(layers)};
  } catch (const Error& error) {
    if (error.exit_code() != ExitCode::kOutOfMemory || size == 1) throw;
    log_info(concat("the layers are measured at ", counted(size / 2, "sample"), ": ", error.what()));
  }
  return measure_what_fits(setup, size / 2);
}

std::vector<LayerCost> costs_of(const Setup& setup) {
  const std::int64_t size = micro_batch_size(setup);
  if (const auto found = find_costs(setup, size)) return found->costs();
  log_info(concat("measuring ", counted(setup.layers, "layer"), " of ", setup.model.name, ", for about ",
                  human_duration(layers_budget(setup)), " (pipeline.planning_budget_s)"));
  const profiler::LayerProfile profile = measure_what_fits(setup, size);
  if (profile.micro_batch == size) keep_costs(setup, profile);  // else another time there may be room
  return profile.costs();
}

std::vector<double> sums_of_devices(const Plan& plan, const std::vector<double>& of_stages) {
  const std::vector<int> owners = stage_owners(plan);
  std::vector<double> sums(plan.devices(), 0.0);
  for (std::size_t s = 0; s < of_stages.size(); ++s) sums[owners[s]] += of_stages[s];
  return sums;
}

// "stage 0 1.50 ms (-25.0 %), stage 1 ...".
std::string off_the_mean(const std::string& what, const std::vector<double>& seconds) {
  const double mean = std::accumulate(seconds.begin(), seconds.end(), 0.0) / static_cast<double>(seconds.size());
  std::vector<std::string> each;
  for (std::size_t i = 0; i < seconds.size(); ++i) {
    const double off = mean > 0 ? 100 * (seconds[i] / mean - 1) : 0;
    each.push_back(
        concat(what, " ", i, " ", fixed(seconds[i] * 1e3, 2), " ms (", off < 0 ? "" : "+", fixed(off, 1), " %)"));
  }
  return join(each, ", ");
}

std::string recomputing_stages(const Plan& plan) {
  std::vector<std::string> stages;
  for (int s = 0; s < plan.stages(); ++s)
    if (plan.recomputes(s)) stages.push_back(std::to_string(s));
  return stages.empty() ? "no stage recomputes" : concat("recomputing: ", join(stages, ", "));
}

}  // namespace

bool partition_is_measured(const Setup& setup) {
  return !setup.config.pipeline.partition && setup.config.pipeline.stages * virtual_stages(setup.config) > 1;
}

bool recompute_is_chosen(const Setup& setup) {
  return setup.config.pipeline.recompute == "auto" && planned_memory(setup) > 0;
}

bool plan_needs_costs(const Setup& setup) { return partition_is_measured(setup) || recompute_is_chosen(setup); }

bool shares_memory(const Setup& setup) { return setup.devices.front().kind == device::DeviceKind::kCpu; }

std::uint64_t planned_memory(const Setup& setup) {
  auto bytes = static_cast<std::uint64_t>(setup.config.device.memory_limit.bytes);
  const device::Device device = setup.devices.front();
  if (device.kind == device::DeviceKind::kCuda) {
    const auto all = device::list_devices();
    const auto own = std::ranges::find(all, device, &device::DeviceDescription::device);
    if (own != all.end()) bytes = bytes == 0 ? own->memory_bytes : std::min(bytes, own->memory_bytes);
  }
  return limit_of_place(bytes, setup.devices) / 10 * 9;
}

double layers_budget(const Setup& setup) { return setup.config.pipeline.planning_budget_s / 3; }
double chunks_budget(const Setup& setup) { return setup.config.pipeline.planning_budget_s - layers_budget(setup); }

Plan make_plan(const Setup& setup, const std::vector<LayerCost>& costs) {
  const config::PipelineConfig& pipeline = setup.config.pipeline;
  Plan plan{.replicas = setup.config.replicas.local,
            .chunks = configured_chunks(setup),
            .global_batch = setup.global_batch,
            .schedule = pipeline.schedule,
            .virtual_stages = virtual_stages(setup.config)};
  const int stages = pipeline.stages * plan.virtual_stages;
  if (!plan_needs_costs(setup)) {
    plan.partition = {pipeline.partition.value_or(std::vector<int>{setup.layers})};
    plan.recompute.assign(stages, pipeline.recompute == "layer");
    return plan;
  }
  plan.partition = {std::vector<int>(stages, 1)};  // the schedule depends on their number alone
  Choice choice = choose_cut_and_chunks(setup, plan, costs);
  warn_of_doubts(plan, costs, choice, !chunks_are_open(setup.config));
  plan.partition = std::move(choice.cut.partition);
  plan.recompute = std::move(choice.cut.recompute);
  return plan;
}

Plan decide_plan(const Setup& setup) {
  if (!plan_needs_costs(setup)) return make_plan(setup, {});
  const std::vector<LayerCost> costs = costs_of(setup);
  Plan plan = make_plan(setup, costs);
  if (plan.stages() > 1) log_info(describe_balance(costs, plan, mean_micro_batch(setup, plan)));
  if (recompute_is_chosen(setup)) log_info(recomputing_stages(plan));
  return plan;
}

std::string describe_balance(const std::vector<LayerCost>& costs, const Plan& plan, double micro_batch) {
  const auto of_stages = tune::stage_times(costs, micro_batch, plan.partition, plan.recompute);
  std::string stages = concat("measured for a micro-batch of ", fixed(micro_batch, 1),
                              ", and off the mean: ", off_the_mean("stage", of_stages));
  if (plan.stages() == plan.devices()) return stages;
  return concat(stages, "; ", off_the_mean("device", sums_of_devices(plan, of_stages)));
}

}  // namespace sluice::train
