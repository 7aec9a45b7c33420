// profiles: chooses among profiles of one model with different numbers of threads per device. Pure.
#pragma once

#include <vector>

#include "profiler/layer_profile.h"

namespace sluice::profiler {

// Sorted by threads per device, most first (stable). Requires: at least one profile.
class Profiles {
 public:
  explicit Profiles(std::vector<LayerProfile> all);

  [[nodiscard]] const std::vector<LayerProfile>& all() const { return all_; }
  [[nodiscard]] const LayerProfile& any() const { return all_.front(); }
  // The profile for this number of concurrent devices: the one with the most threads that fit the cores.
  [[nodiscard]] const LayerProfile& of_slots(int slots) const;
  [[nodiscard]] int threads_of(int slots) const { return of_slots(slots).fingerprint.threads_per_device; }
  [[nodiscard]] int fewest_threads() const { return all_.back().fingerprint.threads_per_device; }

 private:
  std::vector<LayerProfile> all_;
};

// As many stages as slots, so that links and contention are measured; with few layers, several replicas.
struct ProfileShape {
  int stages = 1;
  int replicas = 1;
  int chunks = 1;
};
[[nodiscard]] ProfileShape profile_shape(int slots, int layers, std::int64_t global_batch);

}  // namespace sluice::profiler
