#include "core/divided_up.h"

#include <gtest/gtest.h>

#include <cstdint>

namespace sluice {
namespace {

TEST(DividedUp, IsTheLeastThatHoldsAll) {
  for (std::int64_t b = 1; b < 20; ++b) {
    for (std::int64_t a = 0; a < 60; ++a) {
      EXPECT_GE(divided_up(a, b) * b, a) << a << " / " << b;
      EXPECT_LT((divided_up(a, b) - 1) * b, a) << a << " / " << b;
    }
  }
}

}  // namespace
}  // namespace sluice
