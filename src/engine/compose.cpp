#include "engine/compose.h"

#include <algorithm>
#include <set>

#include <ATen/ATen.h>

#include "core/check.h"
#include "core/concat.h"
#include "core/error.h"
#include "device/memory.h"
#include "pipeline/schedule/plan_schedule.h"

namespace sluice::engine {
namespace {

using pipeline::FlatParameters;
using pipeline::Stage;
using pipeline::StageGrid;

std::vector<std::vector<device::Device>> by_replica(const std::vector<device::Device>& devices, const Plan& plan) {
  check(static_cast<int>(devices.size()) == plan.replicas * plan.devices(), "as many devices as the plan has");
  std::vector<std::vector<device::Device>> grid;
  for (int r = 0; r < plan.replicas; ++r) {
    grid.emplace_back(devices.begin() + r * plan.devices(), devices.begin() + (r + 1) * plan.devices());
  }
  return grid;
}

// Layers ask their first parameter whether to compute gradients.
void check_trained_whole(nn::Layer& layer) {
  const auto parameters = layer.parameters();
  const auto is_trained = [](const nn::Parameter* parameter) { return parameter->value.requires_grad(); };
  const auto trained = std::ranges::count_if(parameters, is_trained);
  check(trained == 0 || trained == static_cast<std::ptrdiff_t>(parameters.size()),
        concat("layer ", layer.name(), " is trained in part; freeze all of its parameters or none"));
}

std::vector<nn::Layer*> pointers_to(const pipeline::LayerList& layers) {
  std::vector<nn::Layer*> pointers;
  for (const auto& layer : layers) pointers.push_back(layer.get());
  return pointers;
}

// owners: [stage], its place in devices[replica].
StageGrid make_grid(const Plan& plan, const ComposeOptions& options,
                    const std::vector<std::vector<device::Device>>& devices, const std::vector<int>& owners) {
  StageGrid grid(plan.replicas);
  for (int r = 0; r < plan.replicas; ++r) {
    auto all_layers = options.make_layers();
    if (r == 0) check_fits(plan, options, pointers_to(all_layers));
    auto layers = pipeline::split(std::move(all_layers), plan.partition, options.model_name);
    int first_param = 0;
    for (int s = 0; s < plan.stages(); ++s) {
      const device::Device device = devices[r][owners[s]];
      const bool shares = r > 0 && device::same_memory(devices[0][owners[s]], device);
      const device::MemoryScope charge(device, device::MemoryKind::kParameters);
      grid[r].push_back(std::make_unique<Stage>(StageId{s}, std::move(layers[s]), ParamId{first_param}, device,
                                                shares ? grid[0][s].get() : nullptr,
                                                Stage::Options{.recompute = plan.recomputes(s)}));
      first_param += static_cast<int>(grid[r].back()->parameters().slots().size());
    }
  }
  return grid;
}

std::vector<comm::SyncedStage> synced_stages(const StageGrid& grid,
                                             const std::vector<std::vector<device::Device>>& devices,
                                             const std::vector<int>& owners) {
  std::vector<comm::SyncedStage> stages;
  for (int s = 0; s < static_cast<int>(grid[0].size()); ++s) {
    comm::SyncedStage& synced = stages.emplace_back();
    synced.stage = StageId{s};
    for (const pipeline::ParameterSlot& slot : grid[0][s]->parameters().slots()) {
      if (slot.is_trained)
        synced.extents.push_back({slot.id, slot.begin, slot.begin + slot.numel, slot.name, slot.tied_to});
    }
    for (std::size_t r = 0; r < grid.size(); ++r) {
      synced.values.push_back(grid[r][s]->parameters().values());
      synced.gradients.push_back(grid[r][s]->parameters().gradients());
      synced.devices.push_back(devices[r][owners[s]]);
    }
  }
  return stages;
}

// An exchange waits inside a backward pass, and LibTorch runs all backward passes of a GPU in one thread.
void refuse_shared_gpus(const std::vector<device::Device>& devices) {
  std::set<device::Device> seen;
  for (const device::Device device : devices) {
    if (device.kind == device::DeviceKind::kCuda && !seen.insert(device).second) {
      throw ConfigError(concat("pipeline.batch_norm = \"sync\" needs a GPU for each stage and replica, but ",
                               device::to_string(device), " is taken twice; name others in device.list"));
    }
  }
}

std::vector<std::shared_ptr<comm::Communicator>> connect_statistics(Communicators& communicators, int devices) {
  std::vector<std::shared_ptr<comm::Communicator>> of_devices;
  for (int d = 0; d < devices; ++d)
    of_devices.push_back(communicators.get(concat("the batch-norm statistics of device ", d)));
  return of_devices;
}

// Of the stages of replica 0.
std::vector<std::shared_ptr<optim::Optimizer>> make_optimizers(const optim::OptimizerOptions& options,
                                                               const std::vector<std::unique_ptr<Stage>>& stages,
                                                               const std::vector<device::Device>& devices,
                                                               const std::vector<int>& owners) {
  std::vector<std::shared_ptr<optim::Optimizer>> optimizers;
  for (std::size_t s = 0; s < stages.size(); ++s) {
    const device::MemoryScope charge(devices[owners[s]], device::MemoryKind::kOptimizer);
    const FlatParameters& parameters = stages[s]->parameters();
    const std::int64_t updated = parameters.updated_elements();
    optimizers.push_back(std::make_shared<optim::Optimizer>(options, parameters.values().narrow(0, 0, updated),
                                                            parameters.gradients().narrow(0, 0, updated)));
  }
  return optimizers;
}

}  // namespace

void check_fits(const Plan& plan, const ComposeOptions& options, const std::vector<nn::Layer*>& layers) {
  pipeline::check_partition(plan.partition, static_cast<int>(layers.size()), options.model_name);
  for (nn::Layer* layer : layers) check_trained_whole(*layer);
  const int optimizer_states = optim::count_states(options.optimizer);
  std::vector<pipeline::LayerState> states;
  for (nn::Layer* layer : layers) states.push_back(pipeline::layer_state(*layer, optimizer_states));
  pipeline::require_state_memory(plan, options.devices, states, options.memory_limit, options.listed);
}

void connect(const Plan& plan, const ComposeOptions& options) {
  if (!options.has_peers()) return;
  if (options.synchronises_batch_norm) (void)connect_statistics(*options.communicators, plan.devices());
  std::vector<device::Device> of_stages;
  for (const int owner : pipeline::stage_owners(plan)) of_stages.push_back(options.devices[owner]);
  connect_stages(*options.communicators, of_stages);
}

Composition compose(const Plan& plan, const ComposeOptions& options) {
  const auto devices = by_replica(options.devices, plan);
  const bool has_peers = options.has_peers();
  if (options.synchronises_batch_norm && (plan.replicas > 1 || has_peers)) refuse_shared_gpus(options.devices);
  const std::vector<int> owners = pipeline::stage_owners(plan);
  for (const device::Device device : options.devices) device::limit_memory(device, options.memory_limit);
  StageGrid grid = make_grid(plan, options, devices, owners);
  Composition composition{.plan = plan};
  if (has_peers && options.synchronises_batch_norm)
    composition.statistics_communicators = connect_statistics(*options.communicators, plan.devices());
  composition.sync = options.make_sync({.stages = synced_stages(grid, devices, owners),
                                        .communicators = has_peers ? options.communicators.get() : nullptr,
                                        .bucket_bytes = options.bucket_bytes,
                                        .record_times = options.record_spans});
  composition.optimizers = make_optimizers(options.optimizer, grid.front(), devices.front(), owners);
  composition.executor =
      std::make_unique<pipeline::Executor>(std::move(grid), devices, owners,
                                           pipeline::ExecutorOptions{.cpu_threads = options.cpu_threads,
                                                                     .step_timeout = options.step_timeout,
                                                                     .record_spans = options.record_spans,
                                                                     .workers = options.workers,
                                                                     .recorder = options.recorder});
  composition.executor->wait_for_caller();
  composition.tied = find_tied_parameters(*composition.executor);
  return composition;
}

std::int64_t Composition::parameter_count() const {
  std::int64_t count = 0;
  for (int s = 0; s < plan.stages(); ++s) {
    for (const auto& slot : executor->stage(ReplicaId{0}, StageId{s}).parameters().slots()) {
      if (slot.tied_to.empty()) count += slot.numel;
    }
  }
  return count;
}

std::uint64_t Composition::gradient_bytes() const {
  std::uint64_t bytes = 0;
  for (int s = 0; s < plan.stages(); ++s)
    bytes += executor->stage(ReplicaId{0}, StageId{s}).parameters().gradients().nbytes();
  return bytes;
}

}  // namespace sluice::engine
