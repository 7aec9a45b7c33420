// The printed configuration reads back as the same Config.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "config/config.h"
#include "config/schema.h"
#include "core/concat.h"
#include "core/error.h"
#include "core/text.h"
#include "random_config.h"

namespace sluice::config {
namespace {

using test::RandomValues;
using test::repaired;

TEST(Print, RandomConfigsRoundTrip) {
  RandomValues random_value(3);
  for (int trial = 0; trial < 500; ++trial) {
    Config config;
    for (const auto& key : schema()) {
      const Value value = random_value(key);
      ASSERT_NO_THROW(check_value(key, value)) << key.name << " = " << to_text(value);
      key.field.set(config, value);
      ASSERT_EQ(to_text(key.field.get(config)), to_text(value)) << key.name << " does not hold its whole range";
    }
    config = repaired(config);
    ASSERT_NO_THROW(validate(config));
    const std::string text = to_toml(config);
    ASSERT_EQ(parse(text, "printed"), config) << text;
  }
}

TEST(Print, EveryKeyCanBeSetAloneAndPrintsAsSet) {
  RandomValues random_value(9);
  for (const auto& key : schema()) {
    Config config;
    key.field.set(config, random_value(key));
    const std::vector<std::string> sets{std::string(key.name) + "=" + to_text(key.field.get(config))};
    try {
      EXPECT_EQ(parse("", "empty", sets), config) << sets[0];
    } catch (const ConfigError&) {
      EXPECT_THROW(validate(config), ConfigError) << sets[0];  // a rule between keys forbids it alone
    }
  }
}

// A user's text, changed.
std::string changed(std::string_view text, const std::function<void(Config&)>& change) {
  Config wanted = parse(text, "own");
  change(wanted);
  std::string edited = text_with(text, "own", wanted);
  EXPECT_EQ(parse(edited, "own"), wanted) << edited;
  return edited;
}

void change_plan(Config& config) {
  config.pipeline.stages = 2;
  config.pipeline.partition = {{3, 4}};
  config.replicas.local = 3;
}

TEST(TextWith, SetsWhatDiffersAndLeavesTheRest) {
  EXPECT_EQ(changed("# mine\n[train]\nlr = 0.5  # as \"they\" had it\n\n"
                    "[pipeline]  # cut\n  stages = 1 # caf\xc3\xa9\nchunks = 4\n\n[log]\n# none\n",
                    change_plan),
            "# mine\n[train]\nlr = 0.5  # as \"they\" had it\n\n"
            "[pipeline]  # cut\n  stages = 2 # caf\xc3\xa9\nchunks = 4\npartition = [3, 4]\n\n[log]\n# none\n"
            "\n[replicas]\nlocal = 3\n");
  EXPECT_EQ(changed("[replicas]\n[pipeline]\npartition = [ # of layers\n  7 ]\nstages = 1", change_plan),
            "[replicas]\nlocal = 3\n[pipeline]\npartition = [3, 4]\nstages = 2");
  EXPECT_EQ(changed("pipeline.chunks = 2\nreplicas = { local = 1 }\n", change_plan),
            "pipeline.chunks = 2\npipeline.stages = 2\npipeline.partition = [3, 4]\nreplicas = { local = 3 }\n");
  EXPECT_EQ(changed("pipeline = { chunks = 2 }\nreplicas = {}", change_plan),
            "pipeline = { chunks = 2, stages = 2, partition = [3, 4] }\nreplicas = {local = 3}");
  EXPECT_EQ(changed("\xef\xbb\xbfreplicas.local = 1\r\n[pipeline]\r\n\tstages = 1\r\n", change_plan),
            "\xef\xbb\xbfreplicas.local = 3\r\n[pipeline]\r\n\tstages = 2\r\npartition = [3, 4]\r\n");
  EXPECT_EQ(changed("", [](Config& config) { config.replicas.local = 3; }), "[replicas]\nlocal = 3\n");
}

TEST(TextWith, ReadsBackAsWhatWasWanted) {
  RandomValues random_value(11);
  const auto random_config = [&] {
    Config config;
    for (const auto& key : schema()) key.field.set(config, random_value(key));
    return repaired(config);
  };
  for (int trial = 0; trial < 20; ++trial) {
    const Config wanted = random_config();
    (void)changed(trial % 2 == 0 ? to_toml(random_config()) : "", [&](Config& config) { config = wanted; });
  }
}

}  // namespace
}  // namespace sluice::config
