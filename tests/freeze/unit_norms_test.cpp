#include "freeze/unit_norms.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "core/error.h"

namespace sluice::freeze {
namespace {

using testing::DoubleEq;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::NanSensitiveDoubleEq;

using Norms = std::vector<double>;
using Points = std::vector<int>;

TEST(UnitNorms, AddUpTheLayersOfAUnitAndLeaveOutTheHead) {
  // Embeddings and two blocks of two layers, then norm and head.
  EXPECT_THAT(norms_of_units(Norms{1, 2, 4, 8, 16, 32, 64}, Points{0, 3, 5}), ElementsAre(7, 24));
  EXPECT_THAT(norms_of_units(Norms{1, 2, 4, 8, 16, 32, 64}, Points{0, 2, 3, 4, 5}), ElementsAre(3, 4, 8, 16));
  EXPECT_THAT(norms_of_units(Norms{1, 2}, Points{0, 1}), ElementsAre(1));
}

TEST(UnitNorms, AreNoneWhereThereAreNoUnits) { EXPECT_THAT(norms_of_units(Norms{1, 2}, Points{0}), IsEmpty()); }

TEST(UnitNorms, AreNotFiniteWhereALayersIsNot) {
  const double nan = std::numeric_limits<double>::quiet_NaN(), infinity = std::numeric_limits<double>::infinity();
  EXPECT_THAT(norms_of_units(Norms{1, nan, 2, infinity, 3, 4}, Points{0, 2, 4, 5}),
              ElementsAre(NanSensitiveDoubleEq(nan), DoubleEq(infinity), 3));
}

TEST(UnitNorms, RefusePointsThatAreNotOfTheModel) {
  const Norms layers{1, 2, 3};
  EXPECT_THROW((void)norms_of_units(layers, Points{}), BugError);
  EXPECT_THROW((void)norms_of_units(layers, Points{1, 2}), BugError);
  EXPECT_THROW((void)norms_of_units(layers, Points{0, 2, 1}), BugError);
  EXPECT_THROW((void)norms_of_units(layers, Points{0, 4}), BugError);
}

}  // namespace
}  // namespace sluice::freeze
