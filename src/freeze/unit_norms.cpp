#include "freeze/unit_norms.h"

#include <algorithm>
#include <cstddef>
#include <numeric>

#include "core/check.h"

namespace sluice::freeze {

std::vector<double> norms_of_units(std::span<const double> layers, std::span<const int> points) {
  check(!points.empty() && points.front() == 0 && std::ranges::is_sorted(points) &&
            static_cast<std::size_t>(points.back()) <= layers.size(),
        "freeze points that begin with 0, do not decrease and end within the layers");
  std::vector<double> norms;
  for (std::size_t unit = 0; unit + 1 < points.size(); ++unit)
    norms.push_back(std::accumulate(layers.begin() + points[unit], layers.begin() + points[unit + 1], 0.0));
  return norms;
}

}  // namespace sluice::freeze
