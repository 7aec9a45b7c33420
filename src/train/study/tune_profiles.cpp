#include "train/study/tune_profiles.h"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "core/concat.h"
#include "core/error.h"
#include "core/log.h"
#include "core/text.h"
#include "device/cpu_threads.h"
#include "device/device.h"
#include "storage/files.h"
#include "storage/scratch_folder.h"
#include "train/plan/freeze_plans.h"
#include "train/plan/what_if.h"
#include "train/setup/setup.h"
#include "train/study/child.h"
#include "train/study/measured_plan.h"

namespace sluice::train {
namespace {

namespace fs = std::filesystem;
using profiler::LayerProfile;

// One for each number of threads that a plan's devices can have.
std::vector<int> slots_to_profile(const config::Config& config, int slots) {
  if (!on_cpu(config) || config.device.threads > 0) return {slots};
  std::set<int> threads;
  std::vector<int> chosen;
  for (int used = slots; used >= 1; --used)
    if (threads.insert(std::max(1, device::available_cores() / used)).second) chosen.push_back(used);
  return chosen;
}

config::Config with_shape(config::Config config, const profiler::ProfileShape& shape) {
  config.pipeline.stages = shape.stages;
  config.pipeline.virtual_stages.reset();
  config.pipeline.partition.reset();
  config.pipeline.schedule = "1f1b";
  config.pipeline.chunks = shape.chunks;
  config.pipeline.recompute = {};
  config.train.micro_batch = 0;
  config.train.reproducible = "off";  // it needs a micro-batch
  config.replicas.local = shape.replicas;
  config.profile.steps = 3;
  return short_run(std::move(config), {});
}

// Devices get the threads that they have if all slots are used.
config::Config to_profile(const config::Config& config, int slots, int layers) {
  config::Config shaped = with_shape(config, profiler::profile_shape(slots, layers, config.train.global_batch));
  if (on_cpu(config) && config.device.threads == 0)
    shaped.device.threads = std::max(1, device::available_cores() / slots);
  return shaped;
}

// Fraction of its time that a child may measure; the rest is for start and writing.
constexpr double kChildShare = 0.8;

std::optional<LayerProfile> profile_in_child(const config::Config& config, const fs::path& folder, int slots,
                                             const ProfileTime& time) {
  const fs::path file = folder / concat("profile-", slots, ".toml"), out = folder / concat("profile-", slots, ".json");
  storage::write_text_atomically(file, config::to_toml(config));
  log_info("measuring the layers for plans of up to ", counted(slots, "device"));
  const ChildEnd end = run_child({"--quiet", "profile", file.string(), "--out", out.string(), "--budget",
                                  concat(std::max(1.0, kChildShare * time.share_s))},
                                 time.limit_s);
  if (!end.timed_out && end.exit_code != 0)
    throw Error(static_cast<ExitCode>(end.exit_code), concat("measuring the layers failed: ", end.last_words));
  if (!fs::exists(out)) return std::nullopt;
  LayerProfile profile = profiler::read_profile(out);
  if (!profile.step) {
    log_warning("no time was left to measure training steps for plans of up to ", counted(slots, "device"),
                ": these are predicted from the layers only; raise --budget to measure them");
  }
  if (const std::string why = profile.disturbance(); !why.empty())
    log_warning("the machine was busy during the measurement of the layers: ", why, "; predictions may be far off");
  return profile;
}

}  // namespace

TunedRun inspect_run(const config::Config& config) {
  const Setup setup = make_setup(with_shape(config, {}));
  if (freezes(config)) require_untied(config, setup.model, /*frozen_layers=*/1);
  const std::int64_t samples = setup.train_set->size(), batch = config::step_batch(config);
  if (samples < batch)
    log_warning("there are ", counted(samples, "training sample"), ", fewer than the global batch of ", batch,
                ": runs make steps of ", samples, ", but predictions are for ", batch, "; lower train.global_batch");
  return {.layers = setup.layers, .samples = samples};
}

TuneProfiles measure_profiles(const config::Config& config, int layers, const tune::Budget& budget, int slots) {
  const storage::ScratchFolder scratch("sluice-profiles");
  const auto measure = [&](int used, const ProfileTime& time) {
    return profile_in_child(to_profile(config, used, layers), scratch.path(), used, time);
  };
  return {Profiles(profiles_within(budget, slots_to_profile(config, slots), measure)), {}};
}

TuneProfiles read_profiles(const config::Config& config, const std::vector<fs::path>& files) {
  std::vector<LayerProfile> all;
  std::map<int, fs::path> by_threads;
  for (const fs::path& file : files) {
    LayerProfile profile = profiler::read_profile(file);
    const int threads = profile.fingerprint.threads_per_device;
    config::Config fitting = config;  // independent of the configured plan's devices
    if (config.device.threads == 0) fitting.device.threads = std::max(1, threads);
    all.push_back(fitted_profile(fitting, std::move(profile), file.string()));
    by_threads.emplace(threads, file);
  }
  return {Profiles(std::move(all)), std::move(by_threads)};
}

std::vector<LayerProfile> profiles_within(const tune::Budget& budget, const std::vector<int>& slots,
                                          const ProfileRun& run) {
  std::vector<LayerProfile> all;
  double longest = 0;
  for (std::size_t i = 0; i < slots.size(); ++i) {
    const int used = slots[i];
    const double begin = budget.used(), left = budget.left();
    const double share = left / static_cast<double>(slots.size() - i);
    std::optional<LayerProfile> profile = left > longest ? run(used, {share, left}) : std::nullopt;
    if (profile) {
      all.push_back(*std::move(profile));
      longest = std::max(longest, budget.used() - begin);
      continue;
    }
    if (all.empty())
      throw ConfigError("measuring the layers exceeded ", human_duration(left), ", its share of --budget ",
                        budget.seconds(), "; raise --budget to ", 2 * budget.seconds(), " or more");
    log_warning("--budget leaves no time to measure the layers for plans of up to ", counted(used, "device"),
                ": these are planned with ", counted(all.back().fingerprint.threads_per_device, "thread"), " a device");
    break;
  }
  return all;
}

bool on_cpu(const config::Config& config) {
  const config::DeviceList& list = config.device.list;
  if (list.names.empty()) return list.choice == "cpu" || (list.choice == "auto" && device::cuda_device_count() == 0);
  return list.names.front().starts_with("cpu");
}

}  // namespace sluice::train
