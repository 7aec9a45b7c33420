// draw: what the random transforms draw besides whole numbers.
#pragma once

#include "core/rng.h"

namespace sluice::data {

[[nodiscard]] inline double between(double low, double high, RngStream& rng) {
  return low + (high - low) * rng.uniform();
}

}  // namespace sluice::data
