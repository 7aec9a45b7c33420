// The printed listing of keys and the documentation page, which are made from the schema.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "config/config.h"
#include "config/schema.h"
#include "core/concat.h"

namespace sluice::config {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(Listing, DefaultsReadBackWithTheirMeaning) {
  const std::string text = to_toml(Config{});
  EXPECT_EQ(parse(text, "printed"), Config{});
  EXPECT_THAT(text, HasSubstr("[train]\n"));
  EXPECT_THAT(text,
              HasSubstr("keep = 3                            # Newest checkpoints to keep (checkpoints; >= 1)\n"));
  EXPECT_THAT(text, HasSubstr("list = \"auto\" "));
  for (const auto& key : schema()) EXPECT_THAT(text, HasSubstr(concat("\n", key.leaf(), " = ")));
}

TEST(Listing, ShortOneHidesAdvancedKeysAtTheirDefaults) {
  const std::string text = to_short_toml(Config{});
  std::size_t advanced = 0;
  for (const auto& key : schema()) {
    if (key.has(kAdvanced)) {
      ++advanced;
    } else {
      EXPECT_THAT(text, HasSubstr(concat("\n", key.leaf(), " = "))) << key.name;
    }
  }
  EXPECT_THAT(text, Not(HasSubstr("\nprefetch = ")));
  EXPECT_THAT(
      text, HasSubstr(concat("\n# Hidden: ", advanced, " advanced keys that were not changed; `sluice config --all`")));
}

TEST(Listing, ShortOneReadsBackAsTheSame) {
  Config config;
  config.data.prefetch = 7;
  config.model.stem = "imagenet";
  const std::string text = to_short_toml(config);
  EXPECT_EQ(parse(text, "printed"), config);
  EXPECT_THAT(text, HasSubstr("\nprefetch = 7 "));
  EXPECT_THAT(text, HasSubstr("\nstem = \"imagenet\" "));
}

TEST(Documentation, PageIsCurrent) {
  const char* root = std::getenv("SLUICE_SOURCE_DIR");
  if (root == nullptr) GTEST_SKIP() << "SLUICE_SOURCE_DIR is not set; ctest sets it";
  std::ifstream page(std::filesystem::path(root) / "docs" / "reference" / "configuration.md");
  const std::string text{std::istreambuf_iterator<char>(page), {}};
  EXPECT_EQ(text, to_markdown()) << "run: build/release/sluice config --markdown > docs/reference/configuration.md";
}

}  // namespace
}  // namespace sluice::config
