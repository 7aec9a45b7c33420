// device_search: the cut whose slowest device takes least time, where devices have several stages each, by branch and
// bound. Only src/tune includes this. Pure.
#pragma once

#include <optional>

#include "tune/partition.h"
#include "tune/possible_stages.h"

namespace sluice::tune {

struct DeviceSearchResult {
  std::optional<Cut> cut;   // nothing where every cut that fits has a device slower than the bound
  bool is_complete = true;  // false: it was given up
};

// bound: seconds that the slowest device may take.
[[nodiscard]] DeviceSearchResult least_slowest_device(const PossibleStages& stages, double bound);

}  // namespace sluice::tune
