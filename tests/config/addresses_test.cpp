#include "config/addresses.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "config/config.h"
#include "core/error.h"

namespace sluice::config {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(Addresses, AreWordsBetweenCommas) {
  EXPECT_THAT(addresses_in(""), ElementsAre());
  EXPECT_THAT(addresses_in(" "), ElementsAre());
  EXPECT_THAT(addresses_in("a:1"), ElementsAre("a:1"));
  EXPECT_THAT(addresses_in("a:1, [::1]:2 "), ElementsAre("a:1", "[::1]:2"));
  EXPECT_THAT(addresses_in("a:1,"), ElementsAre("a:1", ""));
  EXPECT_THAT(addresses_in(",,"), ElementsAre("", "", ""));
}

TEST(Addresses, EveryServerHasOneOfItsOwn) {
  const auto error_with = [](const std::string& addresses) -> std::string {
    try {
      (void)parse("train.steps = 1\nreplicas.sync = \"ps\"\nps.servers = 2\nps.address = \"" + addresses + "\"\n",
                  "run.toml");
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "accepted";
  };
  EXPECT_EQ(error_with("a:1, b:1 "), "accepted");
  EXPECT_THAT(error_with("a:1, a:1"), HasSubstr("run.toml:4: ps.address names a:1 twice, for servers 0 and 1"));
  for (const char* addresses : {"a:1,", ",a:1", "a:1,,b:1", "a:1, "})
    EXPECT_THAT(error_with(addresses), HasSubstr("has an empty entry")) << addresses;
}

}  // namespace
}  // namespace sluice::config
