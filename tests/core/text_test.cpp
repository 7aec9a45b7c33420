#include "core/text.h"

#include <gtest/gtest.h>

#include <vector>

namespace sluice {
namespace {

TEST(EditDistance, CountsSingleCharacterEdits) {
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3U);
  EXPECT_EQ(edit_distance("", "abc"), 3U);
  EXPECT_EQ(edit_distance("same", "same"), 0U);
}

TEST(Nearest, PicksTheClosestWord) {
  const std::vector<std::string> keys{"train.lr", "train.steps", "model.name"};
  EXPECT_EQ(nearest("train.step", keys), "train.steps");
  EXPECT_EQ(nearest("x", {}), "");
}

TEST(Human, SizesAndDurations) {
  EXPECT_EQ(human_bytes(512), "512 B");
  EXPECT_EQ(human_bytes(1536), "1.5 KiB");
  EXPECT_EQ(human_count(11173962), "11.2 M");
  EXPECT_EQ(human_duration(4.24), "4.2 s");
  EXPECT_EQ(human_duration(200), "3 min 20 s");
  EXPECT_EQ(human_duration(3725), "1 h 02 min");
}

}  // namespace
}  // namespace sluice
