// A loader that is slower than the step shows as load wait, to within 2 % of what its reads really took.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <mutex>
#include <thread>
#include <vector>

#include "core/clock.h"
#include "data/loader.h"
#include "engine/compose.h"
#include "engine/train_step.h"
#include "nn/init.h"
#include "nn/linear.h"
#include "profiler/breakdown.h"
#include "train/setup/setup.h"
#include "train/setup/step_batch.h"

namespace sluice::train {
namespace {

constexpr std::int64_t kBatch = 4;
constexpr int kSteps = 8;

// Every read sleeps and notes how long it really was.
class SlowDataset final : public data::Dataset {
 public:
  [[nodiscard]] const data::DatasetInfo& info() const override { return info_; }
  [[nodiscard]] std::int64_t size() const override { return 64; }
  void read(std::int64_t, std::span<std::uint8_t> pixels) const override {
    const Nanoseconds begin = now_ns();
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    std::ranges::fill(pixels, std::uint8_t{0});
    slept_.push_back(now_ns() - begin);  // threads = 0: the thread that calls next()
  }
  [[nodiscard]] std::int64_t target(std::int64_t index) const override { return index % 4; }

  [[nodiscard]] std::vector<Nanoseconds>& slept() const { return slept_; }

 private:
  data::DatasetInfo info_{
      .name = "slow", .channels = 1, .height = 2, .width = 2, .classes = 4, .mean = {0}, .stddev = {1}};
  mutable std::vector<Nanoseconds> slept_;
};

class Flat final : public nn::RegisteredLayer {
 public:
  Flat()
      : RegisteredLayer("fc", {}), linear_(registry_, "fc", 4, 4, {nn::Init::constant(0.5), nn::Init::constant(0)}) {}
  at::Tensor forward(const at::Tensor& input, const nn::ForwardContext& context) override {
    return linear_(input.flatten(1), context);
  }

 private:
  nn::Linear linear_;
};

TEST(SlowLoader, ShowsAsLoadWait) {
  SlowDataset dataset;
  data::Loader loader(dataset, {.batch_size = kBatch, .threads = 0});
  engine::ComposeOptions options{.model_name = "flat",
                                 .make_layers =
                                     [] {
                                       pipeline::LayerList layers;
                                       layers.push_back(std::make_unique<Flat>());
                                       return layers;
                                     },
                                 .devices = {{device::DeviceKind::kCpu, 0}},
                                 .optimizer = {.kind = "sgd"}};
  engine::Composition grid = engine::compose({.partition = {{1}}}, options);
  engine::TrainStep step(grid, {});
  Recorder& recorder = grid.executor->recorder();
  double best = 1;
  for (int number = 0; number < kSteps; ++number) {
    dataset.slept().clear();
    recorder.clear();
    const Nanoseconds begin = now_ns();
    std::optional<data::Batch> batch;
    {
      const SpanScope span(recorder.process(), Phase::kLoadWait);
      batch = loader.next();
    }
    (void)step.run(as_step_batch(*batch, step.task()), number, 0.1);
    const auto breakdown = profiler::break_down(recorder.collect(number, begin, now_ns()));
    Nanoseconds slept = 0;
    for (const Nanoseconds time : dataset.slept()) slept += time;
    ASSERT_EQ(dataset.slept().size(), static_cast<std::size_t>(kBatch));
    best =
        std::min(best, std::abs(static_cast<double>(breakdown.slots[0].load() - slept)) / static_cast<double>(slept));
  }
  EXPECT_LE(best, 0.02);
}

}  // namespace
}  // namespace sluice::train
