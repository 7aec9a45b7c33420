#include "profiler/profiles.h"

#include <algorithm>
#include <functional>
#include <utility>

namespace sluice::profiler {

Profiles::Profiles(std::vector<LayerProfile> all) : all_(std::move(all)) {
  std::ranges::stable_sort(all_, std::greater{},
                           [](const LayerProfile& one) { return one.fingerprint.threads_per_device; });
}

const LayerProfile& Profiles::of_slots(int slots) const {
  for (const LayerProfile& one : all_)
    if (one.fingerprint.threads_per_device * slots <= one.fingerprint.cores) return one;
  return all_.back();
}

ProfileShape profile_shape(int slots, int layers, std::int64_t global_batch) {
  constexpr std::int64_t kChunks = 4;
  const auto at_most = [](std::int64_t number, std::int64_t most) {
    return static_cast<int>(std::clamp<std::int64_t>(number, 1, std::max<std::int64_t>(most, 1)));
  };
  ProfileShape shape{.stages = at_most(slots, layers)};
  shape.replicas = at_most(slots / shape.stages, global_batch);
  shape.chunks = at_most(kChunks, global_batch / shape.replicas);
  return shape;
}

}  // namespace sluice::profiler
