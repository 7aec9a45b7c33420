#include "train/plan/choose_plan.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "core/concat.h"
#include "core/divided_up.h"
#include "core/error.h"
#include "core/log.h"
#include "core/sum_tree.h"
#include "core/text.h"
#include "measure/cost_cache.h"
#include "measure/measure_layers.h"
#include "measure/measure_links.h"
#include "pipeline/schedule/plan_schedule.h"
#include "pipeline/state_memory.h"
#include "train/plan/plan_settings.h"
#include "train/plan/profile_overheads.h"
#include "tune/memory_model.h"

namespace sluice::train {
namespace {

// Measures the whole model on one device, with a smaller micro-batch if memory or time is short.
profiler::LayerProfile measure_fitting_batches(const Setup& setup, std::int64_t size) {
  try {
    auto layers = measure::measure_layers(workload_of(setup), {.sizes = {size},
                                                               .least_rounds = 1,
                                                               .most_rounds = 3,
                                                               .budget_s = layers_budget(setup),
                                                               .fits_budget = true,
                                                               .needed_size = size});
    return {.micro_batch = layers.front().times.front().samples, .layers = std::move(layers)};
  } catch (const Error& error) {
    if (error.exit_code() != ExitCode::kOutOfMemory || size == 1) throw;
    log_info("measuring the layers at ", counted(size / 2, "sample"), " instead: ", error.what());
  }
  return measure_fitting_batches(setup, size / 2);
}

// With train.reproducible, gradients wait for their turn in a sum (pipeline/gradient_tree.h).
std::vector<LayerCost> with_waiting_gradients(std::vector<LayerCost> costs, const Setup& setup) {
  if (!setup.config.train.is_reproducible_by_layout()) return costs;
  const std::int64_t all = divided_up(setup.global_batch, setup.config.train.micro_batch),
                     parts = count_replicas(setup);
  std::size_t most = 1;  // sums that a replica is left with
  for (std::int64_t part = 0; part < parts; ++part)
    most = std::max(most, nodes_within(part_range(all, parts, part), all).size());
  const auto pending =
      static_cast<std::uint64_t>(std::bit_width(static_cast<std::uint64_t>(divided_up(all, parts))) - 1);
  const std::uint64_t arriving = setup.process.processes > 1 ? 1 : 0;
  const std::uint64_t waiting = pending + most - 1 + arriving;
  // Like these weights, they exist while a pass has several micro-batches.
  for (LayerCost& layer : costs) layer.transformed_bytes += waiting * layer.gradient_bytes;
  return costs;
}

std::string recomputing_stages(const Plan& plan) {
  std::vector<std::string> stages;
  for (int s = 0; s < plan.stages(); ++s)
    if (plan.recomputes(s)) stages.push_back(std::to_string(s));
  return stages.empty() ? "no stage recomputes" : concat("recomputing: ", join(stages, ", "));
}

}  // namespace

bool shares_memory(const Setup& setup) { return setup.devices.front().kind == device::DeviceKind::kCpu; }

std::uint64_t planned_memory(const Setup& setup) {
  auto bytes = static_cast<std::uint64_t>(setup.config.device.memory_limit.bytes);
  const device::Device device = setup.devices.front();
  if (device.kind == device::DeviceKind::kCuda) {
    const auto all = device::list_devices();
    const auto own = std::ranges::find(all, device, &device::DeviceDescription::device);
    if (own != all.end()) bytes = bytes == 0 ? own->memory_bytes : std::min(bytes, own->memory_bytes);
  }
  const std::uint64_t of_slot = pipeline::limit_of_slot(bytes, setup.devices);
  // A small limit, as in tests, still leaves half for tensors.
  const std::uint64_t of_cublas = shares_memory(setup) ? 0 : std::min(tune::kCublasBytesOfSlot, of_slot / 2);
  return (of_slot - of_cublas) / 10 * 9;
}

tune::StepOverheads step_overheads(const Setup& setup, const profiler::LayerProfile& profile) {
  tune::StepOverheads costs =
      step_overheads(setup.config, profile, setup.config.replicas.local, setup.process.processes, shares_memory(setup));
  costs.runnable *= share_of_cores(setup.process);
  if (!profile.stage_links.empty()) costs.borders.resize(plan_request(setup).stages());
  for (const profiler::StageLink& link : profile.stage_links) costs.borders.at(link.from_stage) = link.cost;
  return costs;
}

std::vector<profiler::StageLink> measure_borders(const Setup& setup) {
  const tune::PlanRequest request = plan_request(setup);
  if (request.devices == 1) return {};
  return measure::measure_stage_links(setup.devices, pipeline::stage_owners(request.uncut()), setup.cpu_threads);
}

std::vector<LayerCost> layer_costs(const Setup& setup) {
  const std::int64_t size = micro_batch_size(setup);
  if (const auto found = measure::find_costs(setup.config.pipeline.cost_cache, workload_of(setup), size)) {
    log_info("using the layer costs in ", found->source, "; delete the file to measure them again");
    return with_waiting_gradients(found->profile.costs(), setup);
  }
  log_info("measuring ", counted(setup.layers, "layer"), " of ", setup.model.name, "; time budget ",
           human_duration(layers_budget(setup)), " (a third of pipeline.planning_budget_s)");
  const profiler::LayerProfile profile = measure_fitting_batches(setup, size);
  if (profile.micro_batch == size)
    measure::keep_costs(setup.config.pipeline.cost_cache, workload_of(setup),
                        profile);  // not if it is smaller
  return with_waiting_gradients(profile.costs(), setup);
}

tune::MemoryModel memory_model_of(std::vector<LayerCost> costs, const Setup& setup) {
  return {.layers = with_waiting_gradients(std::move(costs), setup),
          .shares_memory = shares_memory(setup),
          .processes = setup.process.processes};
}

double layers_budget(const Setup& setup) { return setup.config.pipeline.planning_budget_s / 3; }
double chunks_budget(const Setup& setup) { return setup.config.pipeline.planning_budget_s - layers_budget(setup); }

tune::PlanRequest plan_request(const Setup& setup) {
  return plan_request(setup.config, {.plan = {.replicas = setup.config.replicas.local,
                                              .chunks = configured_chunks(setup),
                                              .global_batch = setup.global_batch,
                                              .schedule = schedule_name(setup),
                                              .schedule_text = setup.schedule_text,
                                              .virtual_stages = virtual_stages(setup.config)},
                                     .replicas = count_replicas(setup),
                                     .layers = setup.layers,
                                     .memory_limit = planned_memory(setup),
                                     .shares_memory = shares_memory(setup)});
}

Plan plan_by_costs(const Setup& setup, const std::vector<LayerCost>& costs,
                   const std::vector<profiler::StageLink>& borders) {
  const profiler::LayerProfile links{.stage_links =
                                         shares_memory(setup) ? std::vector<profiler::StageLink>() : borders};
  return tune::make_plan(plan_request(setup), costs, step_overheads(setup, links));
}

Plan decide_plan(const Setup& setup) {
  const tune::PlanRequest request = plan_request(setup);
  if (!request.needs_costs()) return tune::make_plan(request, {});
  const std::vector<LayerCost> costs = layer_costs(setup);
  const bool has_copies = request.cut_is_open() && !shares_memory(setup);
  const Plan plan =
      plan_by_costs(setup, costs, has_copies ? measure_borders(setup) : std::vector<profiler::StageLink>());
  if (plan.stages() > 1) {
    log_info(tune::describe_balance(costs, plan, request.mean_micro_batch(plan.chunks)));
  }
  if (request.recompute_is_open()) log_info(recomputing_stages(plan));
  return plan;
}

}  // namespace sluice::train
