// Batches of bytes, which a device normalises, against those that the loader normalises, and against plain arithmetic.
#include <gtest/gtest.h>

#include <vector>

#include <ATen/ATen.h>

#include "data/loader.h"
#include "data/sample_reader.h"
#include "engine/frozen_shapes.h"

namespace sluice::train {
namespace {

// Image i has each byte somewhere, rolled by i.
class AllBytes final : public data::Dataset {
 public:
  AllBytes() {
    info_ = {.name = "all bytes",
             .channels = 3,
             .height = 16,
             .width = 16,
             .classes = 4,
             .mean = {0.4914, 0.4822, 0.4465},
             .stddev = {0.2470, 0.2435, 0.2616}};
  }
  [[nodiscard]] const data::DatasetInfo& info() const override { return info_; }
  [[nodiscard]] std::int64_t size() const override { return 40; }
  void read(std::int64_t index, std::span<std::uint8_t> pixels) const override {
    for (std::size_t i = 0; i < pixels.size(); ++i) pixels[i] = static_cast<std::uint8_t>(i + 7 * index);
  }
  [[nodiscard]] std::int64_t target(std::int64_t index) const override { return index % 4; }

 private:
  data::DatasetInfo info_;
};

data::AugmentOptions all_views() {
  return {.crop_padding = 3,
          .horizontal_flip = true,
          .jitter = {.brightness = 0.4, .contrast = 0.4, .saturation = 0.4, .hue = 0.1},
          .rand_augment = 2};
}

TEST(PixelBatches, AreTheNumbersOfTheLoaderBitForBit) {
  const AllBytes set;
  const std::vector<data::AugmentOptions> views{{}, {.crop_padding = 4, .horizontal_flip = true}, all_views()};
  for (const auto& augment : views) {
    for (const at::ScalarType type : {at::kFloat, at::kDouble}) {
      for (const int threads : {0, 2}) {
        data::LoaderOptions options{.batch_size = 7, .threads = threads, .augment = augment, .seed = 3, .dtype = type};
        data::Loader numbers(set, options);
        options.gives_bytes = true;
        data::Loader bytes(set, options);
        for (int batch = 0; batch < 13; ++batch) {
          const data::Batch expected = *numbers.next(), own = *bytes.next();
          EXPECT_FALSE(expected.pixel_scale.defined());
          ASSERT_EQ(own.at("inputs").scalar_type(), at::kByte);
          EXPECT_EQ(own.at("inputs").nbytes() * c10::elementSize(type), expected.at("inputs").nbytes());
          EXPECT_TRUE(at::equal(pipeline::numbers_of_pixels(own.at("inputs"), own.pixel_scale), expected.at("inputs")))
              << batch;
          EXPECT_TRUE(at::equal(own.at("targets"), expected.at("targets")));
        }
      }
    }
  }
}

TEST(PixelBatches, OnAGpuToo) {
  if (device::cuda_device_count() == 0) GTEST_SKIP() << "no CUDA device is visible";
  const AllBytes set;
  for (const at::ScalarType type : {at::kFloat, at::kDouble}) {
    data::LoaderOptions options{.batch_size = 7, .augment = all_views(), .seed = 3, .dtype = type};
    data::Loader numbers(set, options);
    options.gives_bytes = options.pins = true;
    data::Loader bytes(set, options);
    for (int batch = 0; batch < 13; ++batch) {
      const data::Batch expected = *numbers.next(), own = *bytes.next();
      EXPECT_TRUE(own.at("inputs").is_pinned() && own.at("targets").is_pinned() && own.pixel_scale.is_pinned());
      EXPECT_TRUE(own.sample_ids.is_pinned());
      const at::Tensor there = pipeline::numbers_of_pixels(own.at("inputs").cuda(), own.pixel_scale.cuda());
      EXPECT_TRUE(at::equal(there.cpu(), expected.at("inputs"))) << batch;
    }
  }
}

// (byte / 255 - mean) / stddev, each step rounded to float32 by the compiler's own arithmetic.
TEST(PixelBatches, AreRoundedAsPlainFloatArithmeticRounds) {
  const AllBytes set;
  const data::Samples read = data::SampleReader(set, {.gives_bytes = true}).read(std::vector<std::int64_t>{5}, 0);
  const at::Tensor numbers = pipeline::numbers_of_pixels(read.at("inputs"), read.pixel_scale);
  for (std::int64_t c = 0; c < 3; ++c) {
    const auto mean = static_cast<float>(set.info().mean[c]), deviation = static_cast<float>(set.info().stddev[c]);
    for (std::int64_t i = 0; i < 256; ++i) {
      const auto byte = static_cast<std::uint8_t>(c * 256 + i + 35);
      const float scaled = static_cast<float>(byte) / 255.0F;
      const float centred = scaled - mean;
      EXPECT_EQ(numbers[0][c][i / 16][i % 16].item<float>(), centred / deviation);
    }
  }
}

TEST(PixelBatches, WhatChangesNormalisedNumbersKeepsThem) {
  const AllBytes set;
  const auto first = [&](data::LoaderOptions options) {
    options.batch_size = 8;
    options.gives_bytes = true;
    return *data::Loader(set, options).next();
  };
  for (const data::Batch& batch :
       {first({.augment = {.erasing = 0.5}}), first({.mix = {.mixup = 0.2}}), first({.mix = {.cutmix = 1}})}) {
    EXPECT_EQ(batch.at("inputs").scalar_type(), at::kFloat);
    EXPECT_FALSE(batch.pixel_scale.defined());
  }
}

TEST(PixelBatches, ASampleWithoutInputsIsZeros) {
  const AllBytes set;
  const data::SampleReader reader(set, {.gives_bytes = true});
  const data::Samples read = reader.read(std::vector<std::int64_t>{1, 2}, 0, {false, true});
  EXPECT_GT(read.at("inputs")[0].sum().item<std::int64_t>(), 0);
  EXPECT_EQ(read.at("inputs")[1].sum().item<std::int64_t>(), 0);
}

// Steps on several stages and replicas, with frozen layers and without: the same loss and weights bit for bit.
TEST(PixelBatches, StepsGiveTheSameAsOnNumbers) {
  constexpr std::int64_t kSamples = 11;
  for (const int frozen : {0, 3}) {
    const engine::test::Shape shape{.model = "vit", .frozen = frozen, .stages = 2, .replicas = 2, .chunks = 3};
    engine::Engine on_bytes(plan_of(shape), options_of(shape)), on_numbers(plan_of(shape), options_of(shape));
    const at::Tensor before = engine::parameter_tensors(on_bytes.composition()).rbegin()->second.clone();
    for (std::int64_t step = 0; step < 3; ++step) {
      pipeline::MicroBatch batch = engine::test::make_batch(kSamples, step + 1);
      at::manual_seed(step);
      batch.inputs[0] = at::randint(256, batch.inputs[0].sizes(), at::kByte);
      batch.pixel_scale =
          at::tensor({255.0, 0.45, 0.25}, at::kDouble).view({3, 1}).repeat({1, batch.inputs[0].size(1)});
      pipeline::MicroBatch same = batch;
      same.inputs[0] = (batch.inputs[0].to(at::kDouble) / 255.0 - 0.45) / 0.25;
      same.pixel_scale.reset();
      EXPECT_EQ(on_bytes.step().run(batch, step, 0.05).loss, on_numbers.step().run(same, step, 0.05).loss) << frozen;
      EXPECT_EQ(on_bytes.step().evaluate(batch).scores.loss_sum, on_numbers.step().evaluate(same).scores.loss_sum);
    }
    const auto weights = engine::parameter_tensors(on_bytes.composition());
    for (const auto& [name, tensor] : engine::parameter_tensors(on_numbers.composition()))
      EXPECT_TRUE(at::equal(weights.at(name), tensor)) << name;
    EXPECT_FALSE(at::equal(weights.rbegin()->second, before)) << "no step has moved it";
  }
}

}  // namespace
}  // namespace sluice::train
