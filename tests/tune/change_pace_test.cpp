#include "tune/change_pace.h"

#include <gmock/gmock.h>

namespace sluice::tune {
namespace {

// The window, from 1, in which a steady gain leads to a change; 0: none of 200.
int windows_until_change(ChangePace& pace, double before_s, double after_s) {
  for (int window = 1; window <= 200; ++window)
    if (pace.add(before_s, after_s)) return window;
  return 0;
}

TEST(ChangePace, AGainMustLastAndBeLargeEnough) {
  ChangePace pace;
  EXPECT_EQ(windows_until_change(pace, 1, 0.94), 2);
  EXPECT_EQ(windows_until_change(pace, 1, 0.96), 0);
  EXPECT_FALSE(pace.add(1, 0.5));
  EXPECT_FALSE(pace.add(1, 1)) << "one window without a gain";
  EXPECT_EQ(windows_until_change(pace, 1, 0.5), 2);
  pace.begin_again();
  EXPECT_EQ(windows_until_change(pace, 1, 0.5), 2);
}

TEST(ChangePace, AfterAChangeThatDidNotHelpTheNextNeedsTwiceAsManyWindows) {
  ChangePace pace;
  for (const int windows : {2, 4, 8, 16, 32, 64, 64}) {
    EXPECT_EQ(windows_until_change(pace, 1, 0.5), windows);
    pace.changed(1);
    pace.begin_again();
  }
  EXPECT_EQ(windows_until_change(pace, 0.9, 0.5), 2) << "the last one helped";
  pace.changed(1);
  pace.forget();
  pace.begin_again();
  EXPECT_EQ(windows_until_change(pace, 1, 0.5), 2) << "nobody knows whether it helped";
}

TEST(ChangePace, ATrialTakesOneWindowAndARefusalManyMore) {
  ChangePace pace;
  EXPECT_TRUE(pace.add(1, 0.5, /*was_trial=*/true));
  EXPECT_FALSE(ChangePace().add(1, 0.99, /*was_trial=*/true));
  pace.begin_again();
  pace.refused();
  EXPECT_EQ(windows_until_change(pace, 1, 0.5), 64);
}

}  // namespace
}  // namespace sluice::tune
