// Which profiles `sluice tune` measures, within which time.
#include "train/tune_profiles.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.h"

namespace sluice::train {
namespace {

using testing::ElementsAre;

// Each takes so many seconds, or as many as it may.
class PlayedProfiles {
 public:
  explicit PlayedProfiles(double seconds) : seconds_(seconds) {}

  std::vector<int> measure(const std::vector<int>& places, double budget_s) {
    const tune::Budget budget(budget_s, /*may_change_batch=*/false, [this] { return now; });
    std::vector<int> threads;
    for (const profiler::LayerProfile& profile : profiles_within(budget, places, [this](int used, double limit_s) {
           begun.push_back(used);
           now += std::min(seconds_, limit_s);
           if (seconds_ > limit_s) return std::optional<profiler::LayerProfile>();
           profiler::LayerProfile made;
           made.fingerprint.threads_per_device = 12 / used;
           return std::optional(made);
         }))
      threads.push_back(profile.fingerprint.threads_per_device);
    return threads;
  }

  std::vector<int> begun;
  double now = 0;

 private:
  double seconds_;
};

TEST(TuneProfiles, AreMeasuredAsLongAsTheBudgetLasts) {
  PlayedProfiles quick(1);
  EXPECT_THAT(quick.measure({4, 3, 2, 1}, 100), ElementsAre(3, 4, 6, 12));
  PlayedProfiles slow(25);
  EXPECT_THAT(slow.measure({4, 3, 2, 1}, 100), ElementsAre(3, 4)) << "a third does not fit into 60 s";
  EXPECT_THAT(slow.begun, ElementsAre(4, 3)) << "nor is it begun";
  EXPECT_EQ(slow.now, 50);
}

TEST(TuneProfiles, OneAtLeastIsNeeded) {
  PlayedProfiles slow(61);
  EXPECT_THROW(static_cast<void>(slow.measure({2, 1}, 100)), ConfigError);
  EXPECT_EQ(slow.now, 60) << "it was ended when its part was over";
}

}  // namespace
}  // namespace sluice::train
