// profiles: several profiles of one model, with different numbers of threads a device, and which of them a plan is
// predicted from. Not here: measuring or reading them (profiler/layer_profile.h). Pure.
#pragma once

#include <vector>

#include "profiler/layer_profile.h"

namespace sluice::profiler {

// By their threads a device, most first; of those with as many, as they were given. There is one at least.
class Profiles {
 public:
  explicit Profiles(std::vector<LayerProfile> all);

  [[nodiscard]] const std::vector<LayerProfile>& all() const { return all_; }
  [[nodiscard]] const LayerProfile& any() const { return all_.front(); }
  // For so many devices that work at once: with the most threads that the cores are enough for.
  [[nodiscard]] const LayerProfile& of_slots(int slots) const;
  [[nodiscard]] int threads_of(int slots) const { return of_slots(slots).fingerprint.threads_per_device; }
  [[nodiscard]] int fewest_threads() const { return all_.back().fingerprint.threads_per_device; }

 private:
  std::vector<LayerProfile> all_;
};

// The plan that a profile for so many devices runs: as many stages as slots, so that links and what devices take from
// each other are measured; where the model has fewer layers, one of each, and as many replicas as there is room for.
struct ProfileShape {
  int stages = 1;
  int replicas = 1;
  int chunks = 1;
};
[[nodiscard]] ProfileShape profile_shape(int slots, int layers, std::int64_t global_batch);

}  // namespace sluice::profiler
