// unit_norms: adds L1 norms of layers up to the norms of the units that freeze together. Pure.
#pragma once

#include <span>
#include <vector>

namespace sluice::freeze {

// [unit]: sum over the layers [points[unit], points[unit + 1]). points[k]: number of the model's first layers that are
// frozen when k units are (models/freeze_points.h); begins with 0 and does not decrease.
[[nodiscard]] std::vector<double> norms_of_units(std::span<const double> layers, std::span<const int> points);

}  // namespace sluice::freeze
