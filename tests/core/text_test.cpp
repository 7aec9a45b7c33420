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

TEST(DidYouMean, SuggestsWhatIsNearOrLongerAndNothingFarFetched) {
  const std::vector<std::string> names{"shapes", "fashion_mnist", "mnist"};
  EXPECT_EQ(did_you_mean("shape", names), "; did you mean 'shapes'?");
  EXPECT_EQ(did_you_mean("mnits", names), "; did you mean 'mnist'?");
  EXPECT_EQ(did_you_mean("fashion", names), "; did you mean 'fashion_mnist'?");
  EXPECT_EQ(did_you_mean("cifar10", names), "");
  EXPECT_EQ(did_you_mean("shape", names, 0), "; did you mean 'shapes'?") << "it begins with the word";
  EXPECT_EQ(did_you_mean("mnits", names, 1), "");
  EXPECT_EQ(did_you_mean("x", {}), "");
}

TEST(Counted, KnowsOneAndMany) {
  EXPECT_EQ(counted(1, "step"), "1 step");
  EXPECT_EQ(counted(0, "batch"), "0 batches");
  EXPECT_EQ(counted(3, "process"), "3 processes");
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
