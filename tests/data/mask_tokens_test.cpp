#include "data/mask_tokens.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "core/rng.h"
#include "data/dataset.h"
#include "data/sample_reader.h"

namespace sluice::data {
namespace {

at::Tensor random_tokens(at::IntArrayRef sizes) { return at::randint(10, 500, sizes, at::TensorOptions(at::kLong)); }

TEST(MaskTokens, HidesAShareAndTargetsWhatItHid) {
  const at::Tensor plain = random_tokens({200, 500});
  Fields fields{{"inputs", plain.clone()}, {"targets", plain}};
  mask_tokens(fields, {.share = 0.15, .mask_id = 1, .vocabulary = 500, .kept = {10, 11}},
              [](std::size_t row) { return derive_key(7, row); });
  const at::Tensor &inputs = fields.at("inputs"), &targets = fields.at("targets");
  const at::Tensor chosen = targets.ne(kNoTarget);
  EXPECT_TRUE(targets.masked_select(chosen).equal(plain.masked_select(chosen)));
  EXPECT_TRUE(inputs.masked_select(chosen.logical_not()).equal(plain.masked_select(chosen.logical_not())));
  EXPECT_EQ(chosen.logical_and(plain.lt(12)).sum().item<std::int64_t>(), 0);
  const auto share = [](const at::Tensor& what, const at::Tensor& of) {
    return what.logical_and(of).sum().item<double>() / of.sum().item<double>();
  };
  EXPECT_NEAR(share(chosen, plain.ge(12)), 0.15, 0.005);  // 4 deviations
  EXPECT_NEAR(share(inputs.eq(1), chosen), 0.8, 0.015);
  EXPECT_NEAR(share(inputs.eq(plain), chosen), 0.1, 0.012);
  EXPECT_LT(inputs.max().item<std::int64_t>(), 500);
}

TEST(MaskTokens, DrawsTheSameWhateverThePaddingAndTheOtherRows) {
  const at::Tensor row = random_tokens({1, 40});
  const MaskOptions options{.share = 0.5, .mask_id = 1, .vocabulary = 500};
  Fields alone{{"inputs", row.clone()}};
  mask_tokens(alone, options, [](std::size_t) { return 5; });
  Fields padded{{"inputs", at::cat({random_tokens({1, 60}), at::cat({row, random_tokens({1, 20})}, 1)})},
                {"mask", at::ones({2, 60}, at::kLong)}};
  padded.at("mask")[1].narrow(0, 40, 20).zero_();
  mask_tokens(padded, options, [](std::size_t i) { return i == 1 ? 5 : 6; });
  for (const char* name : {"inputs", "targets"})
    EXPECT_TRUE(padded.at(name)[1].narrow(0, 0, 40).equal(alone.at(name)[0])) << name;
  EXPECT_TRUE(padded.at("targets")[1].narrow(0, 40, 20).eq(kNoTarget).all().item<bool>());
}

TEST(MaskTokens, AreNewInEachEpochAndTheSameInATest) {
  const auto reading = [](Split split) {
    return std::make_pair(std::shared_ptr<Dataset>(open_dataset({.name = "toy", .context = 64}, split)),
                          SampleReaderOptions{.masking = {.share = 0.3, .mask_id = 1, .vocabulary = 64}});
  };
  const auto inputs_in = [](const auto& set, std::int64_t epoch) {
    const SampleReader reader(*set.first, set.second);
    return reader.read(std::vector<std::int64_t>{3, 5}, reader.view_in(epoch)).at("inputs");
  };
  const auto train = reading(Split::kTrain), test = reading(Split::kTest);
  EXPECT_TRUE(inputs_in(train, 1).equal(inputs_in(train, 1)));
  EXPECT_FALSE(inputs_in(train, 1).equal(inputs_in(train, 2)));
  EXPECT_TRUE(inputs_in(test, 1).equal(inputs_in(test, 2)));
}

}  // namespace
}  // namespace sluice::data
