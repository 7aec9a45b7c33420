// Sequences of repeated calls, on a CPU device: that each call does what the first one did, and that records of what
// the calls launched become the layers' times. Each of LibTorch's operators plays a kernel of a microsecond.
#include "measure/layer_timer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ATen/ATen.h>
#include <ATen/record_function.h>

#include <mutex>

#include "device/device.h"
#include "measure/measure_layers.h"
#include "profiler/gpu_repeat_timing.h"

namespace sluice::train {
namespace {

using measure::LayerBench;
using profiler::LayerTimes;
using Part = LayerBench::Part;

constexpr Nanoseconds kKernel = 1000;

measure::Workload workload_on(device::Device device, const std::string& model) {
  measure::Workload workload{.device = device};
  workload.model.name = model;
  workload.model.size = "nano";
  workload.model.image_size = model == "vit" ? 32 : 16;
  workload.layers = models::count_layers(workload.model);
  return workload;
}

// While it lives, LibTorch's operators (not those that they call) are launches of kernels.
class PlayedGpu {
 public:
  PlayedGpu() {
    records = {};
    handle_ = at::addGlobalCallback(at::RecordFunctionCallback(&on_call).scopes({at::RecordScope::FUNCTION}));
  }
  ~PlayedGpu() { at::removeCallback(handle_); }
  PlayedGpu(const PlayedGpu&) = delete;
  PlayedGpu& operator=(const PlayedGpu&) = delete;

  inline static cupti::Records records;
  inline static std::uint32_t launches = 0;  // in all, so that a late record belongs to none of a later pass
  inline static std::mutex mutex;

 private:
  static std::unique_ptr<at::ObserverContext> on_call(const at::RecordFunction&) {
    const std::scoped_lock lock(mutex);
    const std::uint32_t number = ++launches;
    const Nanoseconds now = now_ns();
    records.launches.push_back({.correlation = number, .begin = now, .end = now + 1});
    records.work.push_back({.correlation = number, .begin = now + 10, .end = now + 10 + kKernel});
    return nullptr;
  }

  at::CallbackHandle handle_;
};

class PlayedSession final : public cupti::Session {
 public:
  struct Faults {
    std::uint64_t dropped = 0;     // each time
    bool only_in_warm_up = false;  // dropped the first time alone
    std::size_t late = 0;          // each time the records of so many kernels come with the next collect() only
  };
  explicit PlayedSession(Faults faults) : faults_(faults) {}
  [[nodiscard]] cupti::Records collect() override {
    const std::scoped_lock lock(PlayedGpu::mutex);
    cupti::Records records = std::exchange(PlayedGpu::records, {});
    const auto in_time = static_cast<std::ptrdiff_t>(records.work.size() - std::min(faults_.late, records.work.size()));
    const std::vector<cupti::Work> late(records.work.begin() + in_time, records.work.end());
    records.work.resize(static_cast<std::size_t>(in_time));
    records.work.insert(records.work.end(), kept_back_.begin(), kept_back_.end());
    kept_back_ = late;
    records.dropped = faults_.only_in_warm_up ? std::exchange(faults_.dropped, 0) : faults_.dropped;
    return records;
  }
  void push(cupti::Tag) noexcept override {}
  void pop() noexcept override {}
  [[nodiscard]] cupti::StreamKey key_of(const StreamName&) const override { return {}; }
  [[nodiscard]] cupti::Names& names() override { return names_; }

 private:
  cupti::Names names_;
  Faults faults_;
  std::vector<cupti::Work> kept_back_;
};

// Operators of each layer's parts in one plain pass: forward, input gradient, weight gradient.
std::vector<std::array<int, 3>> operators_of(LayerBench& bench, std::int64_t samples) {
  std::vector<std::array<int, 3>> counts(bench.layers().size());
  PlayedGpu gpu;
  bench.run(samples, /*defers_weights=*/true, [&](Part part, std::size_t i, const std::function<void()>& work) {
    const std::size_t before = PlayedGpu::records.work.size();
    work();
    const int position = part == Part::kForward || part == Part::kLoss ? 0 : part == Part::kWeightGradient ? 2 : 1;
    counts[i].at(position) += static_cast<int>(PlayedGpu::records.work.size() - before);
  });
  return counts;
}

class RepeatTimer : public testing::TestWithParam<const char*> {};

TEST_P(RepeatTimer, TimesOfKernelsAreThoseOfTheOperatorsOfOneCall) {
  const measure::Workload workload = workload_on({}, GetParam());
  LayerBench bench(workload);
  (void)operators_of(bench, 2);  // transformed weights are made once
  const auto operators = operators_of(bench, 2);
  const auto timer = measure::make_repeat_timer(bench, std::make_unique<PlayedSession>(PlayedSession::Faults{}));
  PlayedGpu gpu;
  timer->warm_up(2);
  for (int pass = 0; pass < 2; ++pass) timer->pass(2);
  const std::vector<LayerTimes> times = timer->times(2);
  ASSERT_EQ(times.size(), operators.size());
  int all = 0;
  for (std::size_t i = 0; i < times.size(); ++i) {
    const auto in_kernels = [](double seconds) { return seconds / to_s(kKernel); };
    EXPECT_EQ(times[i].timed_by, "cupti") << i;
    EXPECT_EQ(times[i].samples, 2);
    EXPECT_NEAR(in_kernels(times[i].forward_s), operators[i][0], 1e-6) << i;
    EXPECT_NEAR(in_kernels(times[i].weight_gradient_s), operators[i][2], 1e-6) << i;
    // That the graph is kept costs nothing; that a leaf's gradient is forgotten, nothing.
    EXPECT_NEAR(in_kernels(times[i].input_gradient_s), operators[i][1], 1e-6) << i;
    EXPECT_GT(times[i].gpu->forward.events_s, 0) << i;
    for (const int count : operators[i]) all += count;
  }
  EXPECT_GT(all, 20);
}

TEST_P(RepeatTimer, WhereRecordsAreDroppedTimesAreThoseOfEvents) {
  const measure::Workload workload = workload_on({}, GetParam());
  LayerBench bench(workload);
  const auto timer =
      measure::make_repeat_timer(bench, std::make_unique<PlayedSession>(PlayedSession::Faults{.dropped = 1}));
  PlayedGpu gpu;
  timer->warm_up(2);
  timer->pass(2);
  for (const LayerTimes& times : timer->times(2)) {
    EXPECT_EQ(times.timed_by, "events");
    EXPECT_FALSE(times.gpu->forward.kernels_s.has_value());
    EXPECT_EQ(times.forward_s, std::max(times.gpu->forward.events_s, times.gpu->forward.host_s));
  }
}

TEST_P(RepeatTimer, WhereRecordsComeLateTimesAreThoseOfEvents) {
  const measure::Workload workload = workload_on({}, GetParam());
  LayerBench bench(workload);
  const auto timer =
      measure::make_repeat_timer(bench, std::make_unique<PlayedSession>(PlayedSession::Faults{.late = 1}));
  PlayedGpu gpu;
  timer->warm_up(2);
  for (int pass = 0; pass < 3; ++pass) timer->pass(2);
  for (const LayerTimes& times : timer->times(2)) EXPECT_EQ(times.timed_by, "events");
}

TEST_P(RepeatTimer, WhatTheWarmUpDropsIsNotMissed) {
  const measure::Workload workload = workload_on({}, GetParam());
  LayerBench bench(workload);
  const auto timer = measure::make_repeat_timer(
      bench, std::make_unique<PlayedSession>(PlayedSession::Faults{.dropped = 1, .only_in_warm_up = true}));
  PlayedGpu gpu;
  timer->warm_up(2);
  timer->pass(2);
  for (const LayerTimes& times : timer->times(2)) EXPECT_EQ(times.timed_by, "cupti");
}

TEST_P(RepeatTimer, ACallThatIsRepeatedGivesWhatThePlainOneGives) {
  const measure::Workload workload = workload_on({}, GetParam());
  LayerBench bench(workload);
  bench.run(3, /*defers_weights=*/true, [](Part, std::size_t, const auto& work) { work(); });  // draws the input
  std::vector<at::Tensor> outputs, gradients;
  at::manual_seed(1);  // of the targets, which each run draws
  bench.run(3, /*defers_weights=*/true, [&](Part part, std::size_t i, const std::function<void()>& work) {
    work();
    if (part == Part::kForward) outputs.push_back(bench.running(i).outputs.front().detach());
    if (part == Part::kBackward) gradients.push_back(bench.running(i).inputs.front().grad());
  });
  at::manual_seed(1);
  std::size_t output = 0, gradient = 0;
  int weights = 0;
  bench.run_repeatably(3, [&](Part part, std::size_t i, const std::function<void()>& work) {
    for (int call = 0; call < 3; ++call) work();
    if (part == Part::kForward) {
      EXPECT_TRUE(at::equal(bench.running(i).outputs.front().detach(), outputs.at(output++))) << i;
    }
    if (part == Part::kBackward) {
      const at::Tensor own = bench.running(i).inputs.front().grad();
      const at::Tensor& plain = gradients.at(gradient++);
      ASSERT_EQ(own.defined(), plain.defined()) << i;
      EXPECT_TRUE(!own.defined() || at::equal(own, plain)) << i;
    }
    if (part == Part::kWeightGradient) {
      ++weights;
      EXPECT_FALSE(bench.running(i).deferred.empty()) << "a copy has run";
    }
  });
  EXPECT_EQ(output, outputs.size());
  EXPECT_EQ(gradient, gradients.size());
  EXPECT_GT(weights, 0);
}

// A first use takes as many seconds as the micro-batch has samples.
class PlayedTimer final : public measure::LayerTimer {
 public:
  explicit PlayedTimer(LayerBench& bench) : bench_(bench) {}
  void warm_up(std::int64_t samples) override { pass(samples); }
  [[nodiscard]] int warm_up_passes() const override { return 1; }
  void pass(std::int64_t samples) override {
    bench_.run(samples, /*defers_weights=*/false, [](Part, std::size_t, const auto& work) { work(); });
  }
  [[nodiscard]] std::vector<measure::FirstUse> first_use(std::int64_t samples) override {
    asked.push_back(samples);
    bench_.forget_transformed();
    pass(samples);
    return std::vector(bench_.layers().size(), measure::FirstUse{1.0 * samples, 2.0 * samples});
  }
  [[nodiscard]] std::vector<LayerTimes> times(std::int64_t) override { return {}; }

  std::vector<std::int64_t> asked;

 private:
  LayerBench& bench_;
};

// The last layers of resnet8 have images of 4 x 4 here, whose kernel transforms weights from four samples on
// (nn/winograd.h); those before have larger ones.
TEST(FirstUses, AreThoseOfTheNeededSizeOrOfOneThatTransforms) {
  const measure::Workload workload = workload_on({}, "resnet8");
  LayerBench bench(workload);
  PlayedTimer timer(bench);
  const std::vector<std::int64_t> sizes{1, 2, 4, 8};
  std::vector<std::vector<bool>> transforms;  // [size][layer]
  for (const std::int64_t size : sizes) {
    bench.forget_transformed();
    timer.pass(size);
    std::vector<bool>& layers = transforms.emplace_back();
    for (std::size_t i = 0; i < bench.layers().size(); ++i) layers.push_back(bench.transformed_bytes(i) > 0);
  }
  for (const std::int64_t size : sizes) timer.pass(size);
  const std::vector<measure::FirstUse> first = measure::first_uses(timer, bench, sizes, /*needed=*/2);
  EXPECT_THAT(timer.asked, testing::ElementsAre(2, 1, 4)) << "no more than it takes";
  int at_two = 0, at_four = 0, nowhere = 0;
  for (std::size_t i = 0; i < first.size(); ++i) {
    const int wanted = transforms[1][i] ? 2 : transforms[0][i] ? 1 : transforms[2][i] ? 4 : transforms[3][i] ? 8 : 0;
    EXPECT_EQ(first[i].forward_s, wanted) << i;
    EXPECT_EQ(first[i].backward_s, 2.0 * wanted) << i;
    ++(wanted == 2 ? at_two : wanted == 4 ? at_four : nowhere);
  }
  EXPECT_GT(at_two, 0);
  EXPECT_GT(at_four, 0);
  EXPECT_GT(nowhere, 0);
}

INSTANTIATE_TEST_SUITE_P(Models, RepeatTimer, testing::Values("mlp", "toy_cnn", "resnet8", "vit"),
                         [](const auto& parameter) { return std::string(parameter.param); });

// Devices that share a core wait for it: that is no slow-down of theirs (measure_slowdowns.h).
TEST(ClockOf, CountsProcessorTimeOfACpuDeviceOfOneThread) {
  measure::Workload workload{.device = device::Device{device::DeviceKind::kCpu}, .threads = 1};
  EXPECT_TRUE(measure::counts_processor_time(workload));
  workload.threads = 2;
  EXPECT_FALSE(measure::counts_processor_time(workload));
  workload = {.device = device::Device{device::DeviceKind::kCuda}, .threads = 1};
  EXPECT_FALSE(measure::counts_processor_time(workload));
}

TEST(MeasureLayersOfACpuDevice, AreTimedByAClock) {
  const auto measured = measure::measure_layers(
      workload_on({}, "mlp"),
      {.sizes = {2}, .least_rounds = 1, .most_rounds = 1, .needed_size = 2, .with_kernels = true});
  for (const profiler::MeasuredLayer& layer : measured) {
    EXPECT_EQ(layer.times.at(0).timed_by, "clock");
    EXPECT_FALSE(layer.times.at(0).gpu.has_value());
  }
}

// The kernels of a layer take as long by their records as by events, but for the gaps between them.
TEST(MeasureLayersOfAGpu, ByRecordsAreThoseByEvents) {
  if (device::cuda_device_count() == 0) GTEST_SKIP() << "no CUDA device is visible";
  measure::Workload workload = workload_on({device::DeviceKind::kCuda, 0}, "vit");
  workload.model.size = "tiny";
  const auto measured = measure::measure_layers(workload, {.sizes = {64, 256},
                                                           .least_rounds = 3,
                                                           .most_rounds = 10,
                                                           .budget_s = 10,
                                                           .needed_size = 256,
                                                           .with_memory = false,
                                                           .with_kernels = true});
  double events = 0, kernels = 0;
  for (const profiler::MeasuredLayer& layer : measured) {
    const LayerTimes& times = layer.times.at(1);
    ASSERT_EQ(times.timed_by, "cupti") << layer.name;
    for (const profiler::CallTime& call : {times.gpu->forward, times.gpu->input_gradient, times.gpu->weight_gradient}) {
      EXPECT_GE(call.events_s * 1.02 + 2e-6, *call.kernels_s) << layer.name;
      events += call.events_s;
      kernels += *call.kernels_s;
    }
  }
  EXPECT_GT(kernels, 0);
  EXPECT_LT(events / kernels, 1.15) << "sequences whose queue was kept busy have no gaps but those between kernels";
}

}  // namespace
}  // namespace sluice::train
