#include "data/augment.h"

#include <gmock/gmock.h>

#include <map>

#include "core/error.h"
#include "core/rng.h"

namespace sluice::data {
namespace {

DatasetInfo info_of(std::int64_t channels, std::int64_t height, std::int64_t width) {
  DatasetInfo info{.name = "test", .channels = channels, .height = height, .width = width, .classes = 2};
  for (std::int64_t c = 0; c < channels; ++c) {
    info.mean.push_back(0.3 + 0.1 * static_cast<double>(c));
    info.stddev.push_back(0.2 + 0.05 * static_cast<double>(c));
  }
  return info;
}

std::vector<std::uint8_t> noise(const DatasetInfo& info) {
  RngStream rng(3);
  std::vector<std::uint8_t> pixels(static_cast<std::size_t>(info.pixels()));
  for (auto& pixel : pixels) pixel = static_cast<std::uint8_t>(rng());
  return pixels;
}

template <typename T>
std::vector<T> reference(const DatasetInfo& info, std::int64_t padding, const View& view,
                         const std::vector<std::uint8_t>& pixels) {
  std::vector<T> out;
  for (std::int64_t c = 0; c < info.channels; ++c) {
    for (std::int64_t y = 0; y < info.height; ++y) {
      for (std::int64_t x = 0; x < info.width; ++x) {
        const std::int64_t cropped_x = view.flip ? info.width - 1 - x : x;
        const std::int64_t from_y = y + view.top - padding;
        const std::int64_t from_x = cropped_x + view.left - padding;
        const bool inside = from_y >= 0 && from_y < info.height && from_x >= 0 && from_x < info.width;
        const auto at = static_cast<std::size_t>((c * info.height + from_y) * info.width + from_x);
        const T pixel = inside ? static_cast<T>(pixels[at]) : T{0};
        const auto channel = static_cast<std::size_t>(c);
        out.push_back((pixel / T{255} - static_cast<T>(info.mean[channel])) / static_cast<T>(info.stddev[channel]));
      }
    }
  }
  return out;
}

template <typename T>
class AugmentOf : public testing::Test {};
using Types = testing::Types<float, double>;
TYPED_TEST_SUITE(AugmentOf, Types);

TYPED_TEST(AugmentOf, EveryViewIsWhatTheDefinitionSays) {
  for (const auto& info : {info_of(1, 5, 7), info_of(3, 4, 3)}) {
    const auto pixels = noise(info);
    for (const std::int64_t padding : {0, 1, 2, 9}) {  // 9: a crop may miss the image
      const ViewWriter<TypeParam> writer(info, {.crop_padding = padding});
      std::vector<TypeParam> out(pixels.size());
      for (std::int64_t top = 0; top <= 2 * padding; ++top) {
        for (std::int64_t left = 0; left <= 2 * padding; ++left) {
          for (const bool flip : {false, true}) {
            const View view{.top = top, .left = left, .flip = flip};
            writer.write(pixels, view, out);
            ASSERT_EQ(out, reference<TypeParam>(info, padding, view, pixels)) << top << " " << left << " " << flip;
          }
        }
      }
    }
  }
}

TEST(Augment, WithoutOptionsTheViewIsTheImage) {
  EXPECT_EQ(draw_view({}, 1, 2, 3), View{});
  const auto info = info_of(1, 2, 2);
  std::vector<double> out(4);
  ViewWriter<double>(info, {}).write(std::vector<std::uint8_t>{0, 51, 102, 255}, {}, out);
  EXPECT_THAT(out, testing::Pointwise(testing::DoubleNear(1e-12), {-1.5, -0.5, 0.5, 3.5}));
}

TEST(Augment, PaddingIsBlackBeforeNormalisation) {
  const auto info = info_of(1, 1, 2);
  std::vector<double> out(2);
  ViewWriter<double>(info, {.crop_padding = 1}).write(std::vector<std::uint8_t>{255, 255}, {.top = 0, .left = 0}, out);
  EXPECT_THAT(out, testing::Each(testing::DoubleNear(-0.3 / 0.2, 1e-12)));
}

TEST(Augment, AViewDependsOnSeedEpochAndIndexOnly) {
  const AugmentOptions options{.crop_padding = 40, .horizontal_flip = true};
  const auto view = draw_view(options, 1, 2, 3);
  EXPECT_EQ(view, draw_view(options, 1, 2, 3));
  EXPECT_NE(view, draw_view(options, 9, 2, 3));
  EXPECT_NE(view, draw_view(options, 1, 9, 3));
  EXPECT_NE(view, draw_view(options, 1, 2, 9));
}

TEST(Augment, EveryViewIsEquallyLikely) {
  std::map<std::array<std::int64_t, 3>, int> counts;
  for (std::int64_t index = 0; index < 18000; ++index) {
    const auto view = draw_view({.crop_padding = 1, .horizontal_flip = true}, 1, 0, index);
    ++counts[{view.top, view.left, view.flip ? 1 : 0}];
  }
  ASSERT_EQ(counts.size(), 18U);
  for (const auto& [view, count] : counts) EXPECT_NEAR(count, 1000, 150);
}

TEST(Augment, OptionsAreIndependent) {
  int flips = 0;
  for (std::int64_t index = 0; index < 100; ++index) {
    const auto flip_only = draw_view({.horizontal_flip = true}, 1, 0, index);
    const auto crop_only = draw_view({.crop_padding = 2}, 1, 0, index);
    EXPECT_FALSE(crop_only.flip);
    EXPECT_EQ((View{flip_only.top, flip_only.left, false}), View{});
    flips += flip_only.flip ? 1 : 0;
  }
  EXPECT_NEAR(flips, 50, 20);
}

TEST(Augment, AWrongBufferIsOurBug) {
  const ViewWriter<float> writer(info_of(1, 2, 2), {});
  std::vector<float> out(4);
  EXPECT_THROW(writer.write(std::vector<std::uint8_t>(3), {}, out), BugError);
  EXPECT_THROW(writer.write(std::vector<std::uint8_t>(4), {.top = 1}, out), BugError);
}

}  // namespace
}  // namespace sluice::data
