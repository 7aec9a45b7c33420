// tune_profiles: the profiles that `sluice tune` searches by: those that it is given, or those of `sluice profile` in
// child processes, one for each number of threads that a device of some plan can have, as long as the budget lasts.
// Not here: the search (tuning.h). Threads: one. Errors: ConfigError where a profile is of something else, or measuring
// the first one takes too long.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <vector>

#include "config/config.h"
#include "profiler/layer_profile.h"
#include "tune/budget.h"

namespace sluice::train {

// The profiles by their threads a device, most first.
class Profiles {
 public:
  explicit Profiles(std::vector<profiler::LayerProfile> all);

  [[nodiscard]] const profiler::LayerProfile& any() const { return all_.front(); }
  // For so many devices that work at once: with the most threads that the cores are enough for.
  [[nodiscard]] const profiler::LayerProfile& of_places(int places) const;
  [[nodiscard]] int threads_of(int places) const { return of_places(places).fingerprint.threads_per_device; }
  [[nodiscard]] int fewest_threads() const { return all_.back().fingerprint.threads_per_device; }

 private:
  std::vector<profiler::LayerProfile> all_;
};

struct ProfileSources {
  std::vector<std::filesystem::path> files;  // of different numbers of threads a device; empty: they are measured
  std::filesystem::path keep;                // a folder for those that are measured; empty: they are not kept
};

// places: devices that plans may use. budget: measuring has begun.
[[nodiscard]] Profiles profiles_for(const config::Config& config, const ProfileSources& sources,
                                    const tune::Budget& budget, int places);

// One for so many places that is done in so many seconds; nothing: it was not.
using ProfileRun = std::function<std::optional<profiler::LayerProfile>(int places, double limit_s)>;
// One after the other, as long as what is left is likely to be enough for the next one. Requires: most places first,
// since plans for fewer can do with a profile for more. Errors: ConfigError where none was done.
[[nodiscard]] std::vector<profiler::LayerProfile> profiles_within(const tune::Budget& budget,
                                                                  const std::vector<int>& places,
                                                                  const ProfileRun& run);

// Whether a run of this configuration is on CPU devices.
[[nodiscard]] bool on_cpu(const config::Config& config);

// The plan that a profile for so many devices runs: as many stages as places, so that links and what devices take from
// each other are measured; where the model has fewer layers, one of each, and as many replicas as there is room for.
struct ProfileShape {
  int stages = 1;
  int replicas = 1;
  int chunks = 1;
};
[[nodiscard]] ProfileShape profile_shape(int places, int layers, std::int64_t global_batch);

}  // namespace sluice::train
