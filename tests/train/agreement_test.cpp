#include "train/setup/agreement.h"

#include <gtest/gtest.h>

#include "support/files.h"

namespace sluice::train {
namespace {

comm::Agreement changed(void (*change)(config::Config&)) {
  config::Config config;
  change(config);
  return agreement_of(config, "1.0");
}

TEST(Agreement, LeavesOutHowAMachineDoesItsPart) {
  const comm::Agreement all = agreement_of({}, "1.0");
  EXPECT_EQ(changed([](config::Config& config) { config.device.threads = 3; }), all);
  EXPECT_EQ(changed([](config::Config& config) { config.device.memory_limit.bytes = 1 << 20; }), all);
  EXPECT_EQ(changed([](config::Config& config) { config.data.path = "elsewhere"; }), all);
}

TEST(Agreement, HasWhatIsComputed) {
  const comm::Agreement all = agreement_of({}, "1.0");
  EXPECT_NE(agreement_of({}, "1.1"), all);
  EXPECT_NE(changed([](config::Config& config) { config.device.tf32 = false; }), all);
  EXPECT_NE(changed([](config::Config& config) { config.train.lr = 0.25; }), all);
  EXPECT_NE(changed([](config::Config& config) { config.train.winograd = "4x4"; }), all);
}

TEST(Agreement, HasTheContentOfModelConfigButNotItsPath) {
  const test::TempDir dir;
  const auto with_file = [&](const char* name, const char* text) {
    if (text != nullptr) test::spill(dir / name, text);
    config::Config config;
    config.model.config = dir / name;
    return agreement_of(config, "1.0");
  };
  EXPECT_EQ(with_file("a.json", "{}"), with_file("b.json", "{}"));
  EXPECT_NE(with_file("a.json", "{}"), with_file("b.json", "{ }"));
  EXPECT_NE(with_file("a.json", "{}"), with_file("none.json", nullptr));
}

}  // namespace
}  // namespace sluice::train
