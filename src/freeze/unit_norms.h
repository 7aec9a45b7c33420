// unit_norms: adds L1 norms of layers up to the norms of the units that freeze together. Pure.
#pragma once

#include <span>
#include <vector>

namespace sluice::freeze {

// [unit]: sum over the layers [points[unit], points[unit + 1]). Layers after the last point are the head and are not
// counted. points[k]: number of the model's first layers that are frozen when k units are (models/freeze_points.h). A
// sum is not finite if the norm of one of its layers is not.
// Requires: points begin with 0, do not decrease and end within the layers.
[[nodiscard]] std::vector<double> norms_of_units(std::span<const double> layers, std::span<const int> points);

}  // namespace sluice::freeze
