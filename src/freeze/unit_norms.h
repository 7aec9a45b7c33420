// unit_norms: from norms of layers to norms of what freezes together. L1 norms add up. Pure.
#pragma once

#include <span>
#include <vector>

namespace sluice::freeze {

// [unit]: the sum over the layers that freeze with it, [points[unit], points[unit + 1]); what comes after the last
// point is the head and counts nowhere. points: [k], the number of the model's first layers that are frozen when k
// units are (models/freeze_points.h). Not finite where the norm of a layer is not. Requires: points that begin with 0,
// do not decrease and end within the layers.
[[nodiscard]] std::vector<double> norms_of_units(std::span<const double> layers, std::span<const int> points);

}  // namespace sluice::freeze
