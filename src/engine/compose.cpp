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

// The last layer must be trained, and no trained layer may need a parameter that a frozen one owns.
void check_frozen(const Plan& plan, const ComposeOptions& options, const std::vector<nn::Layer*>& layers) {
  const int count = static_cast<int>(layers.size());
  if (plan.frozen_layers < 0 || plan.frozen_layers >= count) {
    throw ConfigError(plan.frozen_layers, " frozen layers leave none of the ", count, " layers of ", options.model_name,
                      " to train; freeze fewer");
  }
  std::set<std::string> frozen;
  for (int i = 0; i < plan.frozen_layers; ++i)
    for (const nn::Parameter* parameter : layers[i]->parameters()) frozen.insert(parameter->name);
  for (int i = plan.frozen_layers; i < count; ++i) {
    for (const nn::Parameter* parameter : layers[i]->parameters()) {
      if (!frozen.contains(parameter->tied_to)) continue;
      throw ConfigError("the ", plan.frozen_layers, " frozen layers hold ", parameter->tied_to, ", which layer ",
                        layers[i]->name(), " trains too: ", options.model_name,
                        " ties its head to its embeddings, so these cannot be frozen");
    }
  }
}

std::vector<nn::Layer*> pointers_to(const pipeline::LayerList& layers) {
  std::vector<nn::Layer*> pointers;
  for (const auto& layer : layers) pointers.push_back(layer.get());
  return pointers;
}

// One copy for each GPU, one for all CPU devices. `first`: the layers of replica 0.
pipeline::PrefixGrid make_prefixes(pipeline::LayerList first, const ComposeOptions& options) {
  pipeline::PrefixGrid prefixes;
  const int count = static_cast<int>(first.size());
  for (std::size_t slot = 0; count > 0 && slot < options.devices.size(); ++slot) {
    const device::Device device = options.devices[slot];
    const auto same =
        std::ranges::find_if(options.devices, [&](device::Device other) { return device::same_memory(other, device); });
    const auto seen = static_cast<std::size_t>(same - options.devices.begin());
    if (seen < slot) {
      prefixes.push_back(prefixes[seen]);
      continue;
    }
    pipeline::LayerList fresh;
    if (slot > 0) fresh = options.make_layers();
    const device::MemoryScope charge(device, device::MemoryKind::kParameters);
    prefixes.push_back(
        std::make_shared<pipeline::FrozenPrefix>(slot == 0 ? std::move(first) : pipeline::take_first(fresh, count),
                                                 device::torch_device(device), options.numerics));
  }
  return prefixes;
}

struct LayerCopies {
  StageGrid stages;
  pipeline::PrefixGrid prefixes;
};

// owners: [stage], the index of its device in devices[replica].
LayerCopies make_copies(const Plan& plan, const ComposeOptions& options,
                        const std::vector<std::vector<device::Device>>& devices, const std::vector<int>& owners) {
  LayerCopies copies{.stages = StageGrid(plan.replicas), .prefixes = {}};
  StageGrid& grid = copies.stages;
  for (int r = 0; r < plan.replicas; ++r) {
    auto all_layers = options.make_layers();
    if (r == 0) check_fits(plan, options, pointers_to(all_layers));
    auto frozen = pipeline::take_first(all_layers, plan.frozen_layers);
    if (r == 0) copies.prefixes = make_prefixes(std::move(frozen), options);
    auto layers = pipeline::split(std::move(all_layers), plan.partition, options.model_name);
    int first_param = 0;
    for (int s = 0; s < plan.stages(); ++s) {
      const device::Device device = devices[r][owners[s]];
      const bool shares = r > 0 && device::same_memory(devices[0][owners[s]], device);
      const device::MemoryScope charge(device, device::MemoryKind::kParameters);
      grid[r].push_back(std::make_unique<Stage>(StageId{s}, std::move(layers[s]), ParamId{first_param}, device,
                                                shares ? grid[0][s].get() : nullptr,
                                                Stage::Options{.recompute = plan.recomputes(s)}));
      first_param += static_cast<int>(grid[r].back()->parameters().entries().size());
    }
  }
  return copies;
}

// Zeros until load_optimizer() loads the kept states.
std::map<std::string, at::Tensor> frozen_states(const pipeline::PrefixGrid& prefixes,
                                                const std::vector<std::shared_ptr<optim::Optimizer>>& optimizers) {
  std::map<std::string, at::Tensor> states;
  if (prefixes.empty()) return states;
  for (const auto& entry : prefixes.front()->parameters().entries()) {
    if (!prefixes.front()->is_trained_when_thawed(entry.name)) continue;
    for (const auto& [name, flat] : optimizers.front()->states()) {
      states[concat(name, "/", entry.name)] =
          at::empty_strided(entry.sizes, entry.strides, flat.options().device(at::kCPU)).zero_();
    }
  }
  return states;
}

std::vector<comm::RunningStatistic> running_statistics(const StageGrid& grid, std::size_t stage) {
  std::vector<comm::RunningStatistic> statistics;
  for (std::size_t r = 0; r < grid.size(); ++r) {
    std::size_t position = 0;
    for (const nn::Buffer* buffer : grid[r][stage]->parameters().buffers()) {
      if (!buffer->value.is_floating_point()) continue;
      if (r == 0) statistics.push_back({.name = buffer->name, .values = {}});
      statistics[position++].values.push_back(buffer->value);
    }
  }
  return statistics;
}

std::vector<comm::SyncedStage> synced_stages(const StageGrid& grid,
                                             const std::vector<std::vector<device::Device>>& devices,
                                             const std::vector<int>& owners) {
  std::vector<comm::SyncedStage> stages;
  for (int s = 0; s < static_cast<int>(grid[0].size()); ++s) {
    comm::SyncedStage& synced = stages.emplace_back();
    synced.stage = StageId{s};
    for (const pipeline::ParameterEntry& entry : grid[0][s]->parameters().entries()) {
      if (entry.is_trained)
        synced.extents.push_back(
            {entry.id, entry.begin, entry.begin + entry.numel, entry.name, entry.tied_to, entry.sizes, entry.strides});
    }
    for (std::size_t r = 0; r < grid.size(); ++r) {
      synced.values.push_back(grid[r][s]->parameters().values());
      synced.gradients.push_back(grid[r][s]->parameters().gradients());
      synced.nodes.push_back(grid[r][s]->parameters().node_gradients());
      synced.devices.push_back(devices[r][owners[s]]);
    }
    synced.statistics = running_statistics(grid, s);
  }
  return stages;
}

bool synchronises_statistics(const ComposeOptions& options) {
  return options.numerics.batch_norm == nn::BatchNormMode::kSync;
}

// An exchange waits inside a backward pass, and LibTorch runs all backward passes of a GPU in one thread.
void refuse_shared_gpus(const std::vector<device::Device>& devices) {
  std::set<device::Device> seen;
  for (const device::Device device : devices) {
    if (device.kind == device::DeviceKind::kCuda && !seen.insert(device).second) {
      throw ConfigError("pipeline.batch_norm = \"sync\" needs a GPU for each stage and replica, but ",
                        device::to_string(device), " is used twice; name different GPUs in device.list");
    }
  }
}

std::vector<std::shared_ptr<comm::Communicator>> connect_statistics(Communicators& communicators, int devices) {
  std::vector<std::shared_ptr<comm::Communicator>> of_devices;
  for (int d = 0; d < devices; ++d)
    of_devices.push_back(communicators.get(concat("the batch-norm statistics of device ", d)));
  return of_devices;
}

// The stages in the order in which the schedule completes their gradients, for any number of chunks. Devices work at
// the same time; if stages of several devices complete at the same position, the later stage comes first.
std::vector<int> by_last_gradient(const Plan& plan) {
  std::vector<std::pair<std::size_t, int>> ends;
  for (const auto& actions : pipeline::make_train_schedule(plan, pipeline::least_micro_batches(plan)).devices) {
    for (std::size_t i = 0; i < actions.size(); ++i) {
      if (actions[i].op == pipeline::Op::kReduceGradient) ends.emplace_back(i, -index(actions[i].stage));
    }
  }
  std::ranges::sort(ends);
  std::vector<int> stages;
  for (const auto& [end, minus_stage] : ends) stages.push_back(-minus_stage);
  return stages;
}

std::vector<std::shared_ptr<optim::Optimizer>> make_optimizers(const ComposeOptions& options,
                                                               const std::vector<std::unique_ptr<Stage>>& stages,
                                                               const std::vector<device::Device>& devices,
                                                               const std::vector<int>& owners) {
  std::vector<std::shared_ptr<optim::Optimizer>> optimizers;
  for (std::size_t s = 0; s < stages.size(); ++s) {
    const device::MemoryScope charge(devices[owners[s]], device::MemoryKind::kOptimizer);
    const FlatParameters& parameters = stages[s]->parameters();
    const std::int64_t updated = parameters.updated_elements();
    optimizers.push_back(std::make_shared<optim::Optimizer>(
        options.optimizer, parameters.values().narrow(0, 0, updated), parameters.gradients().narrow(0, 0, updated),
        update_ranges(parameters, options.groups)));
  }
  return optimizers;
}

}  // namespace

void check_fits(const Plan& plan, const ComposeOptions& options, const std::vector<nn::Layer*>& layers,
                int frozen_now) {
  const int count = static_cast<int>(layers.size());
  check_frozen(plan, options, layers);
  pipeline::check_partition(plan.partition, count - plan.frozen_layers, options.model_name);
  const int optimizer_states = optim::count_states(options.optimizer);
  std::vector<pipeline::LayerState> states;
  for (int i = 0; i < count; ++i) {
    auto training = pipeline::Training::kAsItIs;
    if (i < frozen_now) training = pipeline::Training::kTrained;
    if (i < plan.frozen_layers) training = pipeline::Training::kFrozen;
    states.push_back(pipeline::layer_state(*layers[i], optimizer_states, training));
  }
  pipeline::require_state_memory(plan, options.devices, states, options.memory_limit, options.listed);
}

void connect(const Plan& plan, const ComposeOptions& options) {
  if (!options.has_peers()) return;
  if (synchronises_statistics(options)) (void)connect_statistics(*options.communicators, plan.devices());
  std::vector<device::Device> of_stages;
  for (const int owner : pipeline::stage_owners(plan)) of_stages.push_back(options.devices[owner]);
  connect_stages(*options.communicators, of_stages);
}

Composition compose(const Plan& plan, const ComposeOptions& options) {
  const auto devices = by_replica(options.devices, plan);
  const bool has_peers = options.has_peers();
  if (synchronises_statistics(options) && (plan.replicas > 1 || has_peers)) refuse_shared_gpus(options.devices);
  const std::vector<int> owners = pipeline::stage_owners(plan);
  for (const device::Device device : options.devices) device::limit_memory(device, options.memory_limit);
  auto [grid, prefixes] = make_copies(plan, options, devices, owners);
  Composition composition{.plan = plan};
  if (has_peers && synchronises_statistics(options))
    composition.statistics_communicators = connect_statistics(*options.communicators, plan.devices());
  composition.sync = options.make_sync({.stages = synced_stages(grid, devices, owners),
                                        .by_last_gradient = by_last_gradient(plan),
                                        .communicators = has_peers ? options.communicators.get() : nullptr,
                                        .bucket_bytes = options.bucket_bytes,
                                        .record_times = options.record_spans,
                                        .sends_bf16 = options.sends_bf16});
  composition.optimizers = make_optimizers(options, grid.front(), devices.front(), owners);
  composition.frozen_optimizer = frozen_states(prefixes, composition.optimizers);
  if (!prefixes.empty()) {
    for (const auto& entry : prefixes.front()->parameters().entries())
      if (prefixes.front()->is_trained_when_thawed(entry.name)) composition.frozen_updates[entry.name] = 0;
  }
  composition.executor =
      std::make_unique<pipeline::Executor>(std::move(grid), devices, owners,
                                           pipeline::ExecutorOptions{.cpu_threads = options.cpu_threads,
                                                                     .step_timeout = options.step_timeout,
                                                                     .record_spans = options.record_spans,
                                                                     .threads = options.threads,
                                                                     .recorder = options.recorder,
                                                                     .limits = options.limits},
                                           std::move(prefixes));
  composition.executor->wait_for_caller();
  composition.tied = find_tied_parameters(*composition.executor);
  composition.features = options.features;
  return composition;
}

void Composition::follow_frozen() {
  if (!features || !has_new_weights) return;
  const auto prefixes = executor->prefixes();
  features->follow(prefixes.empty() ? nullptr : prefixes.front().get());
  has_new_weights = false;
}

std::int64_t Composition::parameter_count() const {
  std::int64_t count = 0;
  const auto add = [&count](const FlatParameters& parameters) {
    for (const auto& entry : parameters.entries()) {
      if (entry.tied_to.empty()) count += entry.numel;
    }
  };
  if (plan.frozen_layers > 0) add(executor->prefixes().front()->parameters());
  for (int s = 0; s < plan.stages(); ++s) add(executor->stage(ReplicaId{0}, StageId{s}).parameters());
  return count;
}

std::int64_t Composition::trained_count() const {
  std::int64_t count = 0;
  for (int s = 0; s < plan.stages(); ++s) {
    for (const auto& entry : executor->stage(ReplicaId{0}, StageId{s}).parameters().entries()) {
      if (entry.is_trained && entry.tied_to.empty()) count += entry.numel;
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
