// affine_fit: fits a + b * size with a, b >= 0 to measured times and minimizes the sum of ((a + b * size - time) /
// time)^2. Exact: the problem is convex, and its minimum is inside or on one of the two edges. Pure.
#pragma once

#include <span>

#include "core/layer_cost.h"
#include "core/link_cost.h"

namespace sluice::profiler {

// Requires: sizes > 0, times >= 0, at least one. With one size, the line goes through zero. Ignores times of 0.
[[nodiscard]] AffineCost fit_affine(std::span<const TimeAtSize> points);

// Requires: as fit_affine(), sizes ascending.
[[nodiscard]] SizedCost sized_cost(std::span<const TimeAtSize> points);

// Latency from the smallest size, bandwidth from sizes within 16 times of the largest, because buffers and caches
// absorb small messages. error: of both together, over all points.
[[nodiscard]] LinkCost fit_link(std::span<const TimeAtSize> points);

}  // namespace sluice::profiler
