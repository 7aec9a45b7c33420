#include "data/mix.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <array>

#include "core/error.h"
#include "core/rng.h"
#include "data/loader.h"
#include "data/shapes.h"
#include "data/text.h"

namespace sluice::data {
namespace {

constexpr ImageSize kSize{6, 9};

TEST(Mix, ACutHasTheShareOfThePixelsThatAreItsOwn) {
  const at::Tensor inputs = at::arange(3, at::kDouble).view({3, 1, 1, 1}).expand({3, 2, kSize.height, kSize.width});
  int empty = 0;
  for (std::uint64_t i = 0; i < 300; ++i) {
    const Mix mix = draw_mix({.cutmix = 1}, derive_key(1, i), kSize);
    ASSERT_TRUE(mix.box);
    const at::Tensor mixed = mix_inputs(inputs.clone(at::MemoryFormat::Contiguous), mix);
    ASSERT_EQ(mixed.size(0), 2);
    for (int k = 0; k < 2; ++k) {
      const auto own = mixed[k].eq(k + 1).sum().item<double>(), other = mixed[k].eq(k).sum().item<double>();
      ASSERT_EQ(own + other, 2 * 6 * 9);
      ASSERT_NEAR(mix.share, own / (2 * 6 * 9), 1e-15);
    }
    empty += mix.share == 1 ? 1 : 0;
  }
  EXPECT_LT(empty, 150);
}

TEST(Mix, ABlendIsTheWeightedMean) {
  const at::Tensor inputs = at::arange(4 * 54, at::kDouble).view({4, 1, 6, 9}).sin();
  const Mix mix = draw_mix({.mixup = 0.4}, 5, kSize);
  ASSERT_FALSE(mix.box);
  for (int k = 0; k < 3; ++k) {
    const at::Tensor expected = inputs[k + 1] * mix.share + inputs[k] * (1 - mix.share);
    EXPECT_TRUE(at::allclose(mix_inputs(inputs.clone(), mix)[k], expected, 1e-15, 1e-15));
  }
}

TEST(Mix, TargetsAreShares) {
  const at::Tensor shares = mix_targets(at::tensor({3, 1, 1}, at::kLong), {.share = 0.75, .box = {}}, 4, at::kDouble);
  EXPECT_TRUE(at::equal(shares, at::tensor({0., 0.75, 0., 0.25, 0., 1., 0., 0.}, at::kDouble).view({2, 4})));
}

// Beta(1, 1) is the uniform distribution, and Beta(2, 2) has the distribution function 3 x^2 - 2 x^3.
TEST(Mix, SharesAreOfTheBetaDistribution) {
  constexpr int kDraws = 10'000, kClasses = 10;
  for (const double a : {1.0, 2.0}) {
    std::array<int, kClasses> counts{};
    for (int i = 0; i < kDraws; ++i) {
      const double x = draw_mix({.mixup = a}, derive_key(3, static_cast<std::uint64_t>(i)), kSize).share;
      const double probability = a == 1 ? x : x * x * (3 - 2 * x);
      ++counts.at(static_cast<std::size_t>(probability * kClasses));
    }
    double chi = 0;
    for (const int count : counts) chi += (count - 1000.0) * (count - 1000.0) / 1000.0;
    EXPECT_LT(chi, 40) << "a = " << a << "; 9 degrees of freedom: once in 10^5";
  }
}

TEST(Mix, OfBothEachBatchHasOneDrawnEvenly) {
  int cuts = 0;
  for (std::uint64_t i = 0; i < 1000; ++i)
    cuts += draw_mix({.mixup = 1, .cutmix = 1}, derive_key(9, i), kSize).box ? 1 : 0;
  EXPECT_NEAR(cuts, 500, 4.5 * 15.8);
}

TEST(Mix, AnInvalidClassIsFound) {
  for (const std::int64_t wrong : {-1, 4}) {
    EXPECT_THROW(static_cast<void>(mix_targets(at::tensor(std::vector<std::int64_t>{3, 1, wrong}, at::kLong),
                                               {.share = 0.75, .box = {}}, 4, at::kDouble)),
                 BugError);
  }
}

LoaderOptions mixing(std::int64_t batch_size) {
  LoaderOptions options;
  options.batch_size = batch_size;
  options.mix = {.mixup = 0.8, .cutmix = 1};
  options.seed = 4;
  options.dtype = at::kDouble;
  return options;
}

// Compares with the batch of a loader that does not mix, moved by one sample.
TEST(LoaderThatMixes, GivesThePlainBatchMixedWithItselfMovedOnByOne) {
  const auto dataset = make_shapes({.samples = 22, .channels = 3, .image_size = 8, .seed = 1}, Split::kTrain);
  const LoaderOptions options = mixing(6);
  LoaderOptions plain = options;
  plain.mix = {};
  Loader mixed_loader(*dataset, options), plain_loader(*dataset, plain);
  bool has_cut = false, has_blended = false;
  for (int i = 0; i < 12; ++i) {
    const Batch mixed = *mixed_loader.next(), whole = *plain_loader.next();
    const Mix mix = draw_mix(options.mix, view_key("mix", options.seed, mixed.epoch, mixed.batch), ImageSize{8, 8});
    (mix.box ? has_cut : has_blended) = true;
    const auto with_last = [](const at::Tensor& all) { return at::cat({all.narrow(0, all.size(0) - 1, 1), all}); };
    EXPECT_TRUE(at::equal(mixed.at("inputs"), mix_inputs(with_last(whole.at("inputs")), mix)));
    EXPECT_TRUE(at::equal(mixed.at("targets"), mix_targets(with_last(whole.at("targets")), mix, 10, at::kDouble)));
    EXPECT_TRUE(at::equal(mixed.sample_ids, whole.sample_ids));
    EXPECT_NEAR(mixed.at("targets").sum().item<double>(), static_cast<double>(whole.at("targets").size(0)), 1e-12);
  }
  EXPECT_TRUE(has_cut && has_blended);
}

TEST(LoaderThatMixes, SharesOfProcessesMakeUpTheWholeBatch) {
  const auto dataset = make_shapes({.samples = 23, .channels = 1, .image_size = 8, .seed = 1}, Split::kTrain);
  for (const std::int64_t parts : {2, 3, 5}) {
    Loader whole(*dataset, mixing(7));
    std::vector<std::unique_ptr<Loader>> loaders;
    for (std::int64_t part = 0; part < parts; ++part) {
      LoaderOptions options = mixing(7);
      options.share = {.first = part, .count = 1, .parts = parts};
      options.threads = static_cast<int>(part % 3);
      loaders.push_back(std::make_unique<Loader>(*dataset, options));
    }
    for (int i = 0; i < 8; ++i) {
      const Batch all = *whole.next();
      std::vector<at::Tensor> inputs, targets;
      for (const auto& loader : loaders) {
        const Batch batch = *loader->next();
        inputs.push_back(batch.at("inputs"));
        targets.push_back(batch.at("targets"));
      }
      EXPECT_TRUE(at::equal(at::cat(inputs), all.at("inputs"))) << parts << " parts, batch " << i;
      EXPECT_TRUE(at::equal(at::cat(targets), all.at("targets")));
    }
  }
}

TEST(LoaderThatMixes, RefusesTokens) {
  const auto toy = make_toy({.samples = 40, .context = 8, .seed = 1}, Split::kTrain);
  EXPECT_THROW(Loader(*toy, mixing(4)), ConfigError);
}

}  // namespace
}  // namespace sluice::data
