// tune_profiles: the profiles that `sluice tune` searches by: those that it is given, or those of `sluice profile` in
// child processes, one for each number of threads that a device of some plan can have, as long as the budget lasts.
// Not here: the search (tuning.h). Threads: one. Errors: ConfigError where a profile is of something else, or measuring
// the first one takes too long.
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

// What is known of the run before anything is measured.
struct TunedRun {
  int layers = 0;
  std::int64_t samples = 0;  // of its training data
};
// Opens the data. Warns where a step would have fewer samples than the batch. Errors: ConfigError where the model
// cannot be frozen and [freeze] asks for it; those of make_setup().
[[nodiscard]] TunedRun inspect_run(const config::Config& config);

struct TuneProfiles {
  Profiles profiles;
  // By threads a device, where they were given; those that were measured are in no file that stays.
  std::map<int, std::filesystem::path> files;
};

// Measures. layers: of the model. slots: devices that plans may use. budget: measuring has begun.
[[nodiscard]] TuneProfiles measure_profiles(const config::Config& config, int layers, const tune::Budget& budget,
                                            int slots);
// files: of different numbers of threads a device; where the configuration names a number, of that one.
[[nodiscard]] TuneProfiles read_profiles(const config::Config& config, const std::vector<std::filesystem::path>& files);

// What a profile may take: it measures less to be done within its share, and is ended at the limit.
struct ProfileTime {
  double share_s = 0;
  double limit_s = 0;
};
// One for so many slots; nothing: it had nothing to show at its limit.
using ProfileRun = std::function<std::optional<profiler::LayerProfile>(int slots, const ProfileTime& time)>;
// One after the other, as long as what is left is likely to be enough for the next one; each has an even share of what
// is left. Requires: most slots first,
// since plans for fewer can do with a profile for more. Errors: ConfigError where none was done.
[[nodiscard]] std::vector<profiler::LayerProfile> profiles_within(const tune::Budget& budget,
                                                                  const std::vector<int>& slots, const ProfileRun& run);

// Whether a run of this configuration is on CPU devices.
[[nodiscard]] bool on_cpu(const config::Config& config);

}  // namespace sluice::train
