// What a stopped worker has not sent: kept for the next process of that worker, in the same run, once.
#include "train/serve/unsent.h"

#include <gtest/gtest.h>

#include <ATen/ATen.h>

#include "core/error.h"
#include "support/files.h"

namespace sluice::train {
namespace {

constexpr ps::Compression kTopK{.kind = ps::Compression::Kind::kTopK};

struct UnsentTest : testing::Test {
  sluice::test::TempDir dir;
  ps::PushCompressor::Named residuals{{"weight", at::arange(4, at::kDouble)}};

  [[nodiscard]] UnsentOwner of_run(const std::string& run) const { return {dir.path(), 3, run}; }
  [[nodiscard]] bool is_there(const std::string& suffix = "") const {
    return std::filesystem::exists(dir.path() / ("workers/3.unsent.safetensors" + suffix));
  }
};

TEST_F(UnsentTest, IsTakenOnce) {
  EXPECT_TRUE(take_unsent(of_run("one"), kTopK).empty());
  save_unsent(of_run("one"), residuals);
  const auto taken = take_unsent(of_run("one"), kTopK);
  ASSERT_EQ(taken.size(), 1);
  EXPECT_TRUE(taken.at("weight").equal(residuals.at("weight")));
  EXPECT_FALSE(is_there());
  EXPECT_TRUE(take_unsent(of_run("one"), kTopK).empty());
}

TEST_F(UnsentTest, OfAnotherRunIsSetAside) {
  for (int number = 1; number <= 2; ++number) {
    save_unsent(of_run("one"), residuals);
    EXPECT_TRUE(take_unsent(of_run("other"), kTopK).empty());
    EXPECT_FALSE(is_there());
    EXPECT_TRUE(is_there(".of-another-run-" + std::to_string(number))) << "beside an earlier one";
  }
}

TEST_F(UnsentTest, StaysWherePushesAreNotCompressed) {
  save_unsent(of_run("one"), residuals);
  EXPECT_TRUE(take_unsent(of_run("one"), {}).empty());
  EXPECT_TRUE(is_there());
  save_unsent(of_run("one"), {});
  EXPECT_EQ(take_unsent(of_run("one"), kTopK).size(), 1);
}

}  // namespace
}  // namespace sluice::train
