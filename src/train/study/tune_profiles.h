// tune_profiles: the profiles for `sluice tune`: given files, or runs of `sluice profile` in child processes within the
// budget. Threads: one. Errors: ConfigError if a profile does not fit, or the first one takes too long.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <vector>

#include "config/config.h"
#include "profiler/profiles.h"
#include "tune/budget.h"

namespace sluice::train {

using profiler::Profiles;

struct TunedRun {
  int layers = 0;
  std::int64_t samples = 0;
};
// Opens the data. Warns if a step would have fewer samples than the batch. ConfigError if [freeze] cannot work.
[[nodiscard]] TunedRun inspect_run(const config::Config& config);

struct TuneProfiles {
  Profiles profiles;
  // By threads per device, if given as files; measured profiles leave no file.
  std::map<int, std::filesystem::path> files;
};

// layers: of the model. slots: devices that plans may use. budget: already running.
[[nodiscard]] TuneProfiles measure_profiles(const config::Config& config, int layers, const tune::Budget& budget,
                                            int slots);
// files: for different threads per device. If the configuration sets the threads, it uses that profile only.
[[nodiscard]] TuneProfiles read_profiles(const config::Config& config, const std::vector<std::filesystem::path>& files);

// A profile adapts its measuring to its share, and is killed at its limit.
struct ProfileTime {
  double share_s = 0;
  double limit_s = 0;
};
using ProfileRun = std::function<std::optional<profiler::LayerProfile>(int slots, const ProfileTime& time)>;
// Runs profiles in turn while the time is likely to suffice, with even shares. Requires: most slots first. ConfigError
// if none was finished.
[[nodiscard]] std::vector<profiler::LayerProfile> profiles_within(const tune::Budget& budget,
                                                                  const std::vector<int>& slots, const ProfileRun& run);

[[nodiscard]] bool on_cpu(const config::Config& config);

}  // namespace sluice::train
