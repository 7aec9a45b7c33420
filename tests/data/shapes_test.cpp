#include "data/shapes.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "core/error.h"

namespace sluice::data {
namespace {

using Pixels = std::vector<std::uint8_t>;

Pixels read(const Dataset& dataset, std::int64_t index) {
  Pixels pixels(static_cast<std::size_t>(dataset.info().pixels()));
  dataset.read(index, pixels);
  return pixels;
}

// For sets: g++ 12 warns without cause about ordering vectors of bytes.
std::string content(const Dataset& dataset, std::int64_t index) {
  const Pixels pixels = read(dataset, index);
  return {pixels.begin(), pixels.end()};
}

TEST(Shapes, HasTheAskedForSizes) {
  const ShapesOptions options{.samples = 103, .channels = 1, .image_size = 20};
  const auto train = make_shapes(options, Split::kTrain);
  EXPECT_EQ(train->size(), 103);
  EXPECT_EQ(train->info().pixels(), 400);
  EXPECT_EQ(train->info().classes, 10);
  EXPECT_EQ(make_shapes(options, Split::kTest)->size(), 20);
  EXPECT_EQ(make_shapes({}, Split::kTrain)->info().pixels(), 3 * 32 * 32);
}

TEST(Shapes, ASampleIsAFunctionOfSeedSplitAndIndex) {
  const auto one = make_shapes({.samples = 50, .seed = 1}, Split::kTrain);
  const auto longer = make_shapes({.samples = 500, .seed = 1}, Split::kTrain);
  const auto other = make_shapes({.samples = 50, .seed = 2}, Split::kTrain);
  std::set<std::string> distinct;
  for (std::int64_t i = 49; i >= 0; --i) {
    EXPECT_EQ(read(*one, i), read(*longer, i));
    EXPECT_EQ(one->target(i), longer->target(i));
    distinct.insert(content(*one, i));
    distinct.insert(content(*other, i));
  }
  EXPECT_EQ(distinct.size(), 100U);
}

// The background of a channel is even except for noise of up to 32. No figure reaches the corners.
TEST(Shapes, TheNoiseIsAsStrongAsDocumented) {
  constexpr std::int64_t kSide = 64, kCorner = 6;
  const auto dataset = make_shapes({.samples = 20, .image_size = kSide}, Split::kTrain);
  int widest = 0;
  for (std::int64_t i = 0; i < dataset->size(); ++i) {
    const Pixels pixels = read(*dataset, i);
    for (std::int64_t channel = 0; channel < 3; ++channel) {
      std::vector<int> ground;
      for (std::int64_t row = 0; row < kCorner; ++row) {
        for (std::int64_t column = 0; column < kCorner; ++column)
          ground.push_back(pixels[static_cast<std::size_t>((channel * kSide + row) * kSide + column)]);
      }
      widest = std::max(widest, std::ranges::max(ground) - std::ranges::min(ground));
    }
  }
  EXPECT_GE(widest, 58);
  EXPECT_LE(widest, 64);
}

TEST(Shapes, TrainAndTestShareNoImage) {
  const auto train = make_shapes({.samples = 500}, Split::kTrain);
  const auto test = make_shapes({.samples = 500}, Split::kTest);
  std::set<std::string> seen;
  for (std::int64_t i = 0; i < train->size(); ++i) seen.insert(content(*train, i));
  for (std::int64_t i = 0; i < test->size(); ++i) EXPECT_FALSE(seen.contains(content(*test, i))) << i;
}

TEST(Shapes, EveryPrefixIsBalancedAndMixed) {
  const auto dataset = make_shapes({.samples = 1003}, Split::kTrain);
  std::array<std::int64_t, 10> counts{};
  std::array<std::int64_t, 10> first_of_ten{};
  for (std::int64_t i = 0; i < dataset->size(); ++i) {
    const auto target = static_cast<std::size_t>(dataset->target(i));
    ++counts.at(target);
    if (i % 10 == 0) ++first_of_ten.at(target);
    const auto [least, most] = std::ranges::minmax(counts);
    ASSERT_LE(most - least, 1) << i;
  }
  EXPECT_GT(std::ranges::min(first_of_ten), 0);  // no class has a fixed position
}

TEST(Shapes, StatesItsOwnMeanAndDeviation) {
  const auto dataset = make_shapes({.samples = 2000}, Split::kTrain);
  double sum = 0, squares = 0, count = 0;
  for (std::int64_t i = 0; i < dataset->size(); ++i) {
    for (const double p : read(*dataset, i)) sum += p / 255, squares += p * p / 255 / 255, ++count;
  }
  const double mean = sum / count;
  for (std::size_t c = 0; c < 3; ++c) {
    EXPECT_NEAR(dataset->info().mean[c], mean, 0.005);
    EXPECT_NEAR(dataset->info().stddev[c], std::sqrt(squares / count - mean * mean), 0.005);
  }
}

// The image minus its mean, over the sum of the channels.
std::vector<double> centred(const Pixels& image, std::size_t plane) {
  std::vector<double> grey(plane, 0.0);
  double mean = 0;
  for (std::size_t i = 0; i < image.size(); ++i) {
    grey[i % plane] += image[i];
    mean += image[i];
  }
  for (auto& value : grey) value -= mean / static_cast<double>(plane);
  return grey;
}

// Classification by the nearest of ten mean images is right far more often than 10 %, and far less than always.
TEST(Shapes, IsLearnableButNotTrivial) {
  const auto train = make_shapes({.samples = 3000}, Split::kTrain);
  const auto test = make_shapes({.samples = 3000}, Split::kTest);
  const std::size_t plane = 1024;
  std::vector<std::vector<double>> centroids(10, std::vector<double>(plane, 0.0));
  for (std::int64_t i = 0; i < train->size(); ++i) {
    const auto grey = centred(read(*train, i), plane);
    auto& centroid = centroids[static_cast<std::size_t>(train->target(i))];
    for (std::size_t p = 0; p < plane; ++p) centroid[p] += grey[p] / 300;
  }
  int right = 0;
  for (std::int64_t i = 0; i < test->size(); ++i) {
    const auto grey = centred(read(*test, i), plane);
    std::vector<double> distances;
    for (const auto& centroid : centroids) {
      double squares = 0;
      for (std::size_t p = 0; p < plane; ++p) squares += (grey[p] - centroid[p]) * (grey[p] - centroid[p]);
      distances.push_back(squares);
    }
    right += std::ranges::min_element(distances) - distances.begin() == test->target(i);
  }
  const double accuracy = right / static_cast<double>(test->size());
  RecordProperty("nearest_centroid_accuracy", std::to_string(accuracy));
  EXPECT_GT(accuracy, 0.25);
  EXPECT_LT(accuracy, 0.75);
}

TEST(Shapes, RefusesOptionsOutOfRange) {
  using testing::HasSubstr;
  const auto making = [](const ShapesOptions& options) {
    return [=] { static_cast<void>(make_shapes(options, Split::kTrain)); };
  };
  EXPECT_THAT(making({.samples = 0}), testing::ThrowsMessage<ConfigError>(HasSubstr("data.samples = 0")));
  EXPECT_THAT(making({.channels = 2}), testing::ThrowsMessage<ConfigError>(HasSubstr("model.channels = 2")));
  EXPECT_THAT(making({.image_size = 7}), testing::ThrowsMessage<ConfigError>(HasSubstr("model.image_size = 7")));
}

}  // namespace
}  // namespace sluice::data
