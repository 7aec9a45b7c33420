// expected_maximum: how far the slowest of several normally distributed times exceeds the mean. Replicas that wait for
// each other all take as long as the slowest. Pure.
#pragma once

namespace sluice::tune {

// Expected maximum of `count` (at least 1) independent standard normals. Multiply it by the standard deviation.
[[nodiscard]] double expected_maximum(int count);

}  // namespace sluice::tune
