// device_search: branch and bound for the cut with the fastest slowest device. Internal to src/tune. Pure.
#pragma once

#include <optional>

#include "tune/partition.h"
#include "tune/possible_stages.h"

namespace sluice::tune {

struct DeviceSearchResult {
  std::optional<Cut> cut;  // empty if every cut that fits has a device slower than the bound
  bool is_complete = true;
};

[[nodiscard]] DeviceSearchResult least_slowest_device(const PossibleStages& stages, double bound);

}  // namespace sluice::tune
