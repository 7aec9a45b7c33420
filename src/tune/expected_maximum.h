// expected_maximum: how far the slowest of many lies beyond the mean, where all are normally distributed: replicas that
// wait for each other take as long as the slowest. Pure.
#pragma once

namespace sluice::tune {

// Of `count` independent standard normals, at least 1. Multiplied by a standard deviation it is that of other normals.
[[nodiscard]] double expected_maximum(int count);

}  // namespace sluice::tune
