// Which profiles `sluice tune` measures, within which time.
#include "train/study/tune_profiles.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.h"

namespace sluice::train {
namespace {

using profiler::profile_shape;
using profiler::ProfileShape;
using testing::ElementsAre;

// Each takes so many seconds, or as many as it may; `shares`: what each was told to keep to.
class PlayedProfiles {
 public:
  explicit PlayedProfiles(double seconds) : seconds_(seconds) {}

  std::vector<int> measure(const std::vector<int>& slots, double budget_s) {
    const tune::Budget budget(budget_s, /*may_change_batch=*/false, [this] { return now; });
    std::vector<int> threads;
    for (const profiler::LayerProfile& profile :
         profiles_within(budget, slots, [this](int used, const ProfileTime&time) {
           begun.push_back(used);
           shares.push_back(time.share_s);
           now += std::min(seconds_, time.limit_s);
           if (seconds_ > time.limit_s) return std::optional<profiler::LayerProfile>();
           profiler::LayerProfile made;
           made.fingerprint.threads_per_device = 12 / used;
           return std::optional(made);
         }))
      threads.push_back(profile.fingerprint.threads_per_device);
    return threads;
  }

  std::vector<int> begun;
  std::vector<double> shares;
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
  EXPECT_THAT(slow.shares, ElementsAre(15, 35.0 / 3)) << "of 60 s for four, then of 35 s for three";
}

TEST(TuneProfiles, OneAtLeastIsNeeded) {
  PlayedProfiles slow(61);
  EXPECT_THROW(static_cast<void>(slow.measure({2, 1}, 100)), ConfigError);
  EXPECT_EQ(slow.now, 60) << "it was ended when its part was over";
}

// As many threads as each of so many devices has where they share 12 cores evenly; of more devices, the least measured.
TEST(TuneProfiles, APlanIsPredictedByTheThreadsThatItsDevicesHave) {
  std::vector<profiler::LayerProfile> measured;
  for (const int threads : {4, 12, 3, 6}) {
    profiler::LayerProfile& made = measured.emplace_back();
    made.fingerprint.cores = 12;
    made.fingerprint.threads_per_device = threads;
  }
  const profiler::Profiles profiles(measured);
  const auto threads_of = [&](int slots) { return profiles.threads_of(slots); };
  EXPECT_THAT((std::vector{threads_of(1), threads_of(2), threads_of(3), threads_of(4)}), ElementsAre(12, 6, 4, 3));
  EXPECT_EQ(threads_of(12), 3);
}

// Stages, replicas and micro-batches.
TEST(TuneProfiles, HaveAShapeThatTheModelCanHave) {
  const auto shape = [](int slots, int layers, std::int64_t batch) {
    const ProfileShape made = profile_shape(slots, layers, batch);
    return std::vector{made.stages, made.replicas, made.chunks};
  };
  EXPECT_THAT(shape(2, 10, 48), ElementsAre(2, 1, 4));
  EXPECT_THAT(shape(8, 8, 48), ElementsAre(8, 1, 4));
  EXPECT_THAT(shape(4, 3, 48), ElementsAre(3, 1, 4));
  EXPECT_THAT(shape(8, 3, 48), ElementsAre(3, 2, 4));
  EXPECT_THAT(shape(4, 1, 48), ElementsAre(1, 4, 4));
  EXPECT_THAT(shape(4, 1, 6), ElementsAre(1, 4, 1)) << "each replica has a sample";
  EXPECT_THAT(shape(4, 1, 2), ElementsAre(1, 2, 1));
  EXPECT_THAT(shape(2, 10, 1), ElementsAre(2, 1, 1));
}

}  // namespace
}  // namespace sluice::train
