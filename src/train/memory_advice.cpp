#include "train/memory_advice.h"

#include <algorithm>
#include <array>
#include <map>

#include "core/concat.h"
#include "core/log.h"
#include "core/text.h"
#include "device/memory.h"
#include "train/choose_plan.h"
#include "train/measure_layers.h"
#include "train/setup.h"
#include "train/train_schedule.h"
#include "tune/partition.h"

namespace sluice::train {
namespace {

using device::MemoryKind;

std::int64_t divided_up(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

// The fewest contiguous stages of at most `limit` bytes of state each; nothing where a layer alone is too large.
std::optional<int> fewest_stages(const std::vector<LayerState>& layers, std::uint64_t copies, std::uint64_t limit) {
  int stages = 1;
  std::uint64_t held = 0;
  for (const LayerState& layer : layers) {
    const std::uint64_t bytes = copies * layer.parameter_bytes;
    if (bytes > limit) return std::nullopt;
    if (held + bytes > limit) {
      ++stages;
      held = 0;
    }
    held += bytes;
  }
  return stages;
}

std::string stages_that_fit(const std::vector<LayerState>& layers, std::uint64_t copies, std::uint64_t limit,
                            int stages) {
  if (const auto fitting = fewest_stages(layers, copies, limit)) {
    return *fitting > stages ? concat("pipeline.stages = ", *fitting, " would hold them")
                             : concat("another pipeline.partition of ", counted(*fitting, "stage"), " would hold them");
  }
  const auto& largest = *std::ranges::max_element(layers, {}, &LayerState::parameter_bytes);
  return concat("no number of stages would do, layer ", largest.name, " alone needs ",
                human_bytes(copies * largest.parameter_bytes), "; raise the limit or choose a smaller model");
}

// What is on a device all the time, and of which places.
struct DeviceState {
  device::BytesByKind bytes;
  std::vector<std::string> places;
};

// Nothing for a plan that does not run.
std::optional<pipeline::Schedule> schedule_of(const Plan& plan) {
  try {
    return make_train_schedule(plan, plan.chunks);
  } catch (const ConfigError&) {
    return std::nullopt;
  }
}

std::int64_t replica_samples(const MemoryModel& model, const Plan& plan) {
  return divided_up(plan.global_batch, std::int64_t{plan.replicas} * model.processes);
}

// A plan that changes one thing, as the user would.
struct Candidate {
  std::string setting;
  std::uint64_t bytes;
};

// The first that fits of the plans which next(0), next(1), ... give until one is none; else the one that needs least.
template <typename Next>
std::optional<Candidate> first_that_fits(const MemoryModel& model, std::uint64_t limit, const Next& next) {
  std::optional<Candidate> best;
  for (int i = 0; const auto setting_and_plan = next(i); ++i) {
    const auto& [setting, plan] = *setting_and_plan;
    const auto bytes = estimate_bytes(model, plan);
    if (!bytes) continue;
    if (!best || *bytes < best->bytes) best = Candidate{setting, *bytes};
    if (best->bytes <= limit) return best;
  }
  return best;
}

using Variation = std::optional<std::pair<std::string, Plan>>;

constexpr std::int64_t kMostChunks = 65'536;  // what pipeline.chunks takes

Variation more_chunks(const MemoryModel& model, Plan plan, int i) {
  const std::int64_t chunks = std::int64_t{plan.chunks} << std::min(i + 1, 20);
  if (i >= 20 || chunks > std::min<std::int64_t>(replica_samples(model, plan), kMostChunks)) return std::nullopt;
  plan.chunks = static_cast<int>(chunks);
  return std::pair{concat("pipeline.chunks = ", plan.chunks), plan};
}

Variation more_stages(const MemoryModel& model, Plan plan, int i) {
  const int devices = plan.devices() + i + 1, stages = devices * plan.virtual_stages;
  if (stages > static_cast<int>(model.layers.size())) return std::nullopt;
  plan.recompute.assign(stages, plan.recompute_any());
  plan.partition = {std::vector<int>(stages, 1)};
  const auto schedule = schedule_of(plan);
  if (!schedule) return std::nullopt;
  const auto samples = static_cast<std::uint64_t>(divided_up(replica_samples(model, plan), plan.chunks));
  const auto recompute = plan.recompute_any() ? tune::Recompute::kLayer : tune::Recompute::kNone;
  plan.partition =
      tune::smallest_cut(model.layers, *schedule,
                         {.most_samples = samples, .recompute = recompute, .shares_memory = model.shares_memory})
          .partition;
  return std::pair{concat("pipeline.stages = ", devices), plan};
}

Variation recomputation(const MemoryModel&, Plan plan, int i) {
  if (i > 0 || plan.recompute_all()) return std::nullopt;
  plan.recompute.assign(plan.stages(), true);
  return std::pair{std::string("pipeline.recompute = \"layer\""), plan};
}

Variation smaller_batch(const MemoryModel& model, Plan plan, int i) {
  const std::int64_t smallest = std::int64_t{plan.replicas} * model.processes * plan.chunks;
  plan.global_batch >>= std::min(i + 1, 60);
  if (plan.global_batch < smallest) return std::nullopt;
  return std::pair{concat("train.global_batch = ", plan.global_batch), plan};
}

constexpr std::array kVariations{more_chunks, recomputation, more_stages, smaller_batch};

}  // namespace

MemoryModel measure_memory_model(const Setup& setup) {
  // Enough for a line through two sizes, and for the kernels that larger ones run.
  constexpr std::int64_t kLeast = 4, kMost = 16;
  return {.layers = measure_layer_bytes(setup, std::clamp(micro_batch_size(setup), kLeast, kMost)),
          .shares_memory = shares_memory(setup),
          .processes = setup.place.processes};
}

void require_state_memory(const Plan& plan, const std::vector<device::Device>& devices,
                          const std::vector<LayerState>& layers, int optimizer_states, std::uint64_t limit) {
  if (limit == 0) return;
  std::map<device::Device, DeviceState> states;
  const std::vector<int> owners = stage_owners(plan);
  for (int r = 0; r < plan.replicas; ++r) {
    std::size_t layer = 0;
    for (int s = 0; s < plan.stages(); ++s) {
      std::uint64_t bytes = 0;
      for (int i = 0; i < plan.partition.layers_per_stage[s]; ++i) bytes += layers[layer++].parameter_bytes;
      const device::Device device = devices[r * plan.devices() + owners[s]];
      const bool shares = r > 0 && device::same_memory(devices[owners[s]], device);
      DeviceState& state = states[device];
      state.places.push_back(concat("replica ", r, " stage ", s));
      state.bytes[MemoryKind::kGradients] += bytes;
      if (!shares) state.bytes[MemoryKind::kParameters] += bytes;
      if (r == 0) state.bytes[MemoryKind::kOptimizer] += static_cast<std::uint64_t>(optimizer_states) * bytes;
    }
  }
  for (const auto& [device, state] : states) {
    std::uint64_t all = 0;
    for (const std::uint64_t bytes : state.bytes.bytes) all += bytes;
    if (all <= limit) continue;
    const auto copies = static_cast<std::uint64_t>(2 + optimizer_states);
    throw OutOfMemoryError(concat(join(state.places, ", "), ": out of memory on ", device::to_string(device), ": ",
                                  device::describe(state.bytes), " are ", human_bytes(all),
                                  " before any micro-batch, over its device.memory_limit of ", human_bytes(limit), "; ",
                                  stages_that_fit(layers, copies, limit, plan.devices())));
  }
}

std::optional<std::vector<std::uint64_t>> estimate_device_bytes(const MemoryModel& model, const Plan& plan) {
  const auto samples = static_cast<std::uint64_t>(divided_up(replica_samples(model, plan), plan.chunks));
  const auto schedule = schedule_of(plan);
  if (!schedule) return std::nullopt;
  return tune::device_peaks(model.layers, *schedule, plan.partition, plan.recompute, samples, model.shares_memory);
}

std::optional<std::uint64_t> estimate_bytes(const MemoryModel& model, const Plan& plan) {
  const auto of_devices = estimate_device_bytes(model, plan);
  return of_devices ? std::optional(std::ranges::max(*of_devices)) : std::nullopt;
}

std::string what_would_fit(const MemoryModel& model, const Plan& plan, std::uint64_t limit) {
  std::vector<std::string> fitting;
  std::optional<Candidate> nearest;
  for (const auto& variation : kVariations) {
    const auto candidate = first_that_fits(model, limit, [&](int i) { return variation(model, plan, i); });
    if (!candidate) continue;
    if (candidate->bytes <= limit)
      fitting.push_back(concat(candidate->setting, " would need about ", human_bytes(candidate->bytes), " a device"));
    if (!nearest || candidate->bytes < nearest->bytes) nearest = candidate;
  }
  if (!fitting.empty()) return join(fitting, ", ");
  if (!nearest) return "nothing less can be asked for";
  return concat("none of these alone fits, ", nearest->setting, " comes nearest with about ",
                human_bytes(nearest->bytes), " a device");
}

Error with_what_would_fit(const Error& error, const Setup& setup, const Plan& plan) {
  const auto limit = static_cast<std::uint64_t>(setup.config.device.memory_limit.bytes);
  if (limit == 0 || setup.devices.front().kind != device::DeviceKind::kCpu) return error;
  try {
    return OutOfMemoryError(concat(error.what(), ": ", what_would_fit(measure_memory_model(setup), plan, limit)));
  } catch (const std::exception& no_measurement) {
    log_debug(concat("what would fit is not known: ", no_measurement.what()));
    return error;
  }
}

}  // namespace sluice::train
