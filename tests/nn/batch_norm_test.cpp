#include "nn/batch_norm.h"

#include <gtest/gtest.h>

#include "nn/batch_norm_fast.h"
#include "nn/compare.h"

namespace sluice::nn {
namespace {

constexpr auto kLayout = at::MemoryFormat::ChannelsLast;

at::Tensor before_activation(const Tensors& t) {
  const at::Tensor y = at::batch_norm(t[0], t[1], t[2], {}, {}, true, 0.1, 1e-5, false);
  return t.size() > 3 ? y + t[3] : y;
}

at::Tensor ours(const Tensors& t, Activation activation) {
  const at::Tensor residual = t.size() > 3 ? t[3] : at::Tensor();
  return batch_norm_training(t[0], residual, t[1], t[2], 1e-5, activation).y;
}

class BatchNormTest : public testing::TestWithParam<std::tuple<at::ScalarType, std::int64_t>> {};

TEST_P(BatchNormTest, EqualsAutogradWithAndWithoutResidualAndRelu) {
  const auto [type, channels] = GetParam();
  at::manual_seed(3);
  const auto image = [&, t = type, c = channels] { return (at::randn({6, c, 20, 11}, t) * 2 + 5).contiguous(kLayout); };
  const at::Tensor weight = at::randn({channels}, type), bias = at::randn({channels}, type);
  for (const Activation activation : {Activation::kNone, Activation::kRelu}) {
    for (const bool with_residual : {false, true}) {
      Tensors inputs{image(), weight, bias};
      if (with_residual) inputs.push_back(image() - 5);
      const Outcome a = run_with_gradients([=](const Tensors& t) { return ours(t, activation); }, inputs);
      // ReLU has no derivative at 0, so the reference takes the side that ours took.
      const at::Tensor open = activation == Activation::kRelu ? a.y.gt(0).to(at::kDouble) : at::ones({1}, at::kDouble);
      Tensors exact;
      for (const auto& input : inputs) exact.push_back(input.to(at::kDouble));
      expect_equal_outcomes(a, run_with_gradients([&](const Tensors& t) { return before_activation(t) * open; }, exact),
                            tolerance_of(type));
    }
  }
}

// 16, 48 and 112 use groups of one, two and four vectors of every instruction set; 5 has no fast path.
INSTANTIATE_TEST_SUITE_P(Types, BatchNormTest,
                         testing::Combine(testing::Values(at::kFloat, at::kDouble), testing::Values(5, 16, 48, 112)));

TEST(BatchNormFast, TakesChannelsLastFloatOnly) {
  const at::Tensor x = at::randn({2, 16, 4, 4}), weight = at::ones({16});
  EXPECT_TRUE(batch_norm_has_fast_path(x.contiguous(kLayout), {}, weight));
  EXPECT_FALSE(batch_norm_has_fast_path(x, {}, weight));
  EXPECT_FALSE(batch_norm_has_fast_path(x.contiguous(kLayout), x, weight));
  EXPECT_FALSE(batch_norm_has_fast_path(x.contiguous(kLayout).to(at::kDouble), {}, weight.to(at::kDouble)));
}

TEST(BatchNormFast, StatisticsSurviveAMeanFarFromZero) {
  at::manual_seed(4);
  const at::Tensor x = (at::randn({8, 16, 16, 16}) * 0.01 + 100).contiguous(kLayout);
  const auto statistics =
      batch_norm_training(x, {}, at::ones({16}), at::zeros({16}), 1e-5, Activation::kNone).statistics;
  const auto [variance, mean] = at::var_mean(x.to(at::kDouble), at::IntArrayRef{0, 2, 3}, /*unbiased=*/false);
  EXPECT_LE(relative_error(statistics.variance, variance), 1e-4);
  EXPECT_LE(relative_error(statistics.mean, mean), 1e-6);
}

struct Harness : RegisteredLayer {
  explicit Harness(at::ScalarType type) : RegisteredLayer("bn", {.dtype = type}), norm(registry_, "bn", 16) {}
  at::Tensor forward(const at::Tensor& x, const ForwardContext& context) override {
    return norm(x, context, Activation::kNone);
  }
  at::Tensor buffer(std::size_t i) { return buffers()[i]->value; }
  BatchNorm2d norm;
};

class RunningStatistics : public testing::TestWithParam<at::ScalarType> {
 protected:
  void SetUp() override {
    at::manual_seed(5);
    batch_ = (at::randn({7, 16, 5, 3}, GetParam()) * 3 - 2).contiguous(kLayout);
  }
  // Micro-batches of 3, 3 and 1.
  [[nodiscard]] Tensors micro_batches() const {
    return {batch_.narrow(0, 0, 3), batch_.narrow(0, 3, 3), batch_.narrow(0, 6, 1)};
  }
  at::Tensor batch_;
};

void take_in_collected(BatchNorm2d& norm) {
  for (const BatchNorm2d::Collected& collected : norm.collect()) norm.take_in(collected.statistics);
}

// Numbered micro-batches are kept apart, in whichever order they run, also if a layer is called twice for one.
TEST_P(RunningStatistics, NumberedMicroBatchesWaitUntilTheyAreCollected) {
  Harness layer(GetParam());
  const auto micro = micro_batches();
  for (const std::int64_t number : {2, 0, 1})
    layer.forward(micro[static_cast<std::size_t>(number)], {.training = true, .micro_batch = number});
  EXPECT_EQ(layer.buffer(2).item<std::int64_t>(), 0);
  const std::vector<BatchNorm2d::Collected> collected = layer.norm.collect();
  ASSERT_EQ(collected.size(), 3U);
  for (const auto& [number, statistics] : collected) {
    const auto [variance, mean] = at::var_mean(micro[static_cast<std::size_t>(number)].to(at::kDouble),
                                               at::IntArrayRef{0, 2, 3}, /*unbiased=*/false);
    EXPECT_LE(relative_error(statistics.mean, mean), 1e-6);
    EXPECT_LE(relative_error(statistics.variance, variance), 1e-6);
  }
  EXPECT_TRUE(layer.norm.collect().empty());
  for (int call = 0; call < 2; ++call) layer.forward(micro[0], {.training = true, .micro_batch = 5});
  const auto twice = layer.norm.collect();
  ASSERT_EQ(twice.size(), 1U);
  EXPECT_EQ(twice.front().statistics.count, 2 * micro[0].numel() / 16);
}

TEST_P(RunningStatistics, MicroFollowsEveryMicroBatchAsTorchDoes) {
  Harness layer(GetParam());
  at::Tensor mean = at::zeros({16}, at::kDouble), variance = at::ones({16}, at::kDouble);
  for (const auto& micro : micro_batches()) {
    layer.forward(micro, {.training = true});
    at::native_batch_norm(micro.to(at::kDouble), {}, {}, mean, variance, true, 0.1, 1e-5);
  }
  take_in_collected(layer.norm);
  EXPECT_LE(relative_error(layer.buffer(0), mean), 1e-6);
  EXPECT_LE(relative_error(layer.buffer(1), variance), 1e-6);
  EXPECT_EQ(layer.buffer(2).item<std::int64_t>(), 3);
}

TEST_P(RunningStatistics, DeferredTakesTheWholeMiniBatchOnceShortLastMicroBatchIncluded) {
  Harness layer(GetParam());
  for (int batch = 0; batch < 2; ++batch) {
    for (const auto& micro : micro_batches()) {
      layer.forward(micro, {.training = true, .numerics = {.batch_norm = BatchNormMode::kDeferred}});
    }
    EXPECT_EQ(layer.buffer(2).item<std::int64_t>(), batch);
    take_in_collected(layer.norm);
  }
  // Twice the same batch: running = 0.81 * initial + 0.19 * batch, with the unbiased variance of all 7 * 15 values.
  const auto [variance, mean] = at::var_mean(batch_.to(at::kDouble), at::IntArrayRef{0, 2, 3}, /*unbiased=*/true);
  EXPECT_LE(relative_error(layer.buffer(0), mean * 0.19), 1e-6);
  EXPECT_LE(relative_error(layer.buffer(1), variance * 0.19 + 0.81), 1e-6);
  EXPECT_EQ(layer.buffer(2).item<std::int64_t>(), 2);
  take_in_collected(layer.norm);  // nothing pending
  EXPECT_EQ(layer.buffer(2).item<std::int64_t>(), 2);
}

TEST_P(RunningStatistics, BothModesNormaliseAlikeAndARepeatedForwardLeavesThemAlone) {
  Harness layer(GetParam());
  const at::Tensor micro = layer.forward(batch_, {.training = true});
  const at::Tensor mean = layer.buffer(0).clone();
  const at::Tensor deferred = layer.forward(
      batch_, {.training = true, .numerics = {.batch_norm = BatchNormMode::kDeferred}, .update_statistics = false});
  take_in_collected(layer.norm);
  EXPECT_TRUE(at::equal(micro, deferred));
  EXPECT_TRUE(at::equal(layer.buffer(0), mean));
  EXPECT_EQ(layer.buffer(2).item<std::int64_t>(), 1);
}

TEST_P(RunningStatistics, EvaluationUsesThem) {
  Harness layer(GetParam());
  layer.buffer(0).fill_(1);
  layer.buffer(1).fill_(4);
  const at::Tensor y = layer.forward(batch_, {.training = false});
  EXPECT_LE(relative_error(y, (batch_.to(at::kDouble) - 1) / std::sqrt(4 + 1e-5)), 1e-6);
}

TEST(BatchNormOfOneValue, IsWarnedOfOnceWithTheLayerAndTheBatch) {
  Harness layer(at::kFloat);
  const std::int64_t channels = layer.buffer(0).numel();
  const auto said_of = [&](at::IntArrayRef sizes, const ForwardContext& context) {
    testing::internal::CaptureStderr();
    static_cast<void>(layer.forward(at::randn(sizes), context));
    return testing::internal::GetCapturedStderr();
  };
  EXPECT_EQ(said_of({1, channels, 1, 2}, {.training = true}), "");
  EXPECT_EQ(said_of({1, channels, 1, 1}, {.training = false}), "");
  EXPECT_EQ(said_of({1, channels, 1, 1}, {.training = true, .is_measurement = true}), "");
  const std::string text = said_of({1, channels, 1, 1}, {.training = true});
  for (const char* part : {"batch-norm bn normalises one value per channel", "1 sample of 1x1", "pipeline.chunks"})
    EXPECT_NE(text.find(part), std::string::npos) << text;
  EXPECT_EQ(said_of({1, channels, 1, 1}, {.training = true}), "");
}

INSTANTIATE_TEST_SUITE_P(Types, RunningStatistics, testing::Values(at::kFloat, at::kDouble));

}  // namespace
}  // namespace sluice::nn
