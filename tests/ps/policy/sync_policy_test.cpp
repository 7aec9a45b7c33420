#include "ps/policy/sync_policy.h"

#include <gtest/gtest.h>

#include "core/error.h"

namespace sluice::ps {
namespace {

TEST(SyncPolicy, PresetsAreSoundAndNamed) {
  for (const std::string& name : policy_names()) {
    for (const int workers : {1, 2, 7}) {
      const SyncPolicy policy = preset_policy(name, workers);
      EXPECT_NO_THROW(check_policy(policy, name)) << name << workers;
      EXPECT_EQ(policy.workers, workers);
    }
  }
  EXPECT_EQ(preset_policy("bsp", 3), preset_policy("fmb", 3));
  EXPECT_THROW((void)preset_policy("nothing", 3), ConfigError);
}

TEST(SyncPolicy, RefusesWhatCannotWork) {
  const auto refuses = [](const SyncPolicy& policy) { EXPECT_THROW(check_policy(policy, "ps"), ConfigError); };
  refuses({.workers = 0});
  refuses({.workers = 3, .quorum = 4});
  refuses({.quorum = -1});
  refuses({.grace = -1});
  refuses({.staleness = -2});
  refuses({.deadline = -1});
  refuses({.local_steps = 4});
  refuses({.payload = Payload::kWeights});
  refuses({.deadline = 1, .local_steps = 4, .payload = Payload::kDelta});
  refuses({.weigh = Weigh::kTargetsSquaredPerStep});
  refuses({.merge = Merge::kHalf});
  refuses({.local_steps = 4, .payload = Payload::kWeights, .merge = Merge::kBesides});
}

}  // namespace
}  // namespace sluice::ps
