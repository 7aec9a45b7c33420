// affine_fit: the line a + b * size, neither part negative, that is nearest to measured times in relative error:
// it minimises the sum of ((a + b * size - time) / time)^2, so that the short times of small sizes count as much as the
// long ones of large sizes. Exact: the problem is convex, and its minimum is inside or on one of the two edges. Pure.
// Not here: measuring; what the sizes are (samples, bytes).
#pragma once

#include <span>

#include "core/layer_cost.h"
#include "core/link_cost.h"

namespace sluice::profiler {

// Requires: sizes > 0, times >= 0, at least one point. One size says nothing about a: the line then goes through zero.
// Points without time are passed over; with no other the answer is zero.
[[nodiscard]] AffineCost fit_affine(std::span<const TimeAtSize> points);

// The points with the line through them. Requires: as above, sizes ascending.
[[nodiscard]] SizedCost sized_cost(std::span<const TimeAtSize> points);

// Latency by the smallest size, bandwidth by a line through those within 16 times of the largest: what small messages
// take says nothing of large ones where buffers and caches take them in. error: of both together, over all points.
[[nodiscard]] LinkCost fit_link(std::span<const TimeAtSize> points);

}  // namespace sluice::profiler
