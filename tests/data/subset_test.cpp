#include "data/subset.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <string>

#include "core/error.h"

namespace sluice::data {
namespace {

class Numbered final : public Dataset {
 public:
  explicit Numbered(std::int64_t size) : size_(size) {
    info_ = {.name = "numbered", .channels = 1, .height = 1, .width = 1, .classes = size, .mean = {0}, .stddev = {1}};
  }
  [[nodiscard]] const DatasetInfo& info() const override { return info_; }
  [[nodiscard]] std::int64_t size() const override { return size_; }
  void read(std::int64_t index, std::span<std::uint8_t> sample) const override {
    sample[0] = static_cast<std::uint8_t>(index);
  }
  [[nodiscard]] std::int64_t target(std::int64_t index) const override { return index; }

 private:
  std::int64_t size_;
  DatasetInfo info_;
};

std::vector<std::int64_t> samples_in(const Dataset& dataset) {
  std::vector<std::int64_t> samples;
  for (std::int64_t i = 0; i < dataset.size(); ++i) {
    std::uint8_t pixel = 0;
    dataset.read(i, {&pixel, 1});
    EXPECT_EQ(pixel, dataset.target(i));
    samples.push_back(pixel);
  }
  return samples;
}

TEST(HoldOut, EverySampleIsOnOneSideAndInOrder) {
  for (const double part : {0.001, 0.1, 0.25, 0.9}) {
    const HeldOut cut = hold_out(std::make_shared<Numbered>(200), part);
    const auto train = samples_in(*cut.train), validation = samples_in(*cut.validation);
    EXPECT_EQ(std::ssize(validation), std::max<std::int64_t>(std::llround(200 * part), 1));
    EXPECT_TRUE(std::ranges::is_sorted(train));
    EXPECT_TRUE(std::ranges::is_sorted(validation));
    std::set<std::int64_t> all(train.begin(), train.end());
    all.insert(validation.begin(), validation.end());
    EXPECT_EQ(all.size(), 200U);
    EXPECT_EQ(train.size() + validation.size(), 200U);
    EXPECT_EQ(cut.validation->info().split, Split::kTest);
    EXPECT_EQ(cut.train->info().split, Split::kTrain);
  }
}

TEST(HoldOut, IsDrawnEvenly) {
  std::int64_t in_front = 0;
  const HeldOut cut = hold_out(std::make_shared<Numbered>(200), 0.5);
  for (const std::int64_t sample : samples_in(*cut.validation)) in_front += sample < 100 ? 1 : 0;
  EXPECT_NEAR(static_cast<double>(in_front), 50, 4 * 3.54);  // four deviations of a hypergeometric draw
  EXPECT_EQ(samples_in(*hold_out(std::make_shared<Numbered>(200), 0.5).validation), samples_in(*cut.validation));
}

TEST(HoldOut, LeavesSomethingToTrainWith) {
  EXPECT_THROW((void)hold_out(std::make_shared<Numbered>(1), 0.1), ConfigError);
}

TEST(Limited, TakesTheFirstOnes) {
  EXPECT_THAT(samples_in(*limited(std::make_unique<Numbered>(9), 3)), testing::ElementsAre(0, 1, 2));
  EXPECT_EQ(limited(std::make_unique<Numbered>(9), 10)->size(), 9);
}

TEST(Limited, TakesOfEveryClassOfAFolder) {
  const std::filesystem::path folder = std::filesystem::path(testing::TempDir()) / "limited_image_folder";
  for (const std::string split : {"train", "val"}) {
    for (const std::string name : {"a", "b", "c"}) {
      std::filesystem::create_directories(folder / split / name);
      for (const std::string file : {"1.jpg", "2.jpg", "3.jpg"})
        std::ofstream(folder / split / name / file) << "unread";
    }
  }
  for (const Split split : {Split::kTrain, Split::kTest}) {
    const auto few = open_dataset({.name = "image_folder", .path = folder, .limit = 3}, split);
    ASSERT_EQ(few->size(), 3);
    for (std::int64_t i = 0; i < 3; ++i) EXPECT_EQ(few->target(i), i);
  }
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace sluice::data
