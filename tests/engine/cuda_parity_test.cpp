// Parity on a GPU: stages and replicas that share cuda:0, and stages on a CPU device and a GPU in turn, give the
// gradients, parameters and running statistics of one CPU device. In float64, to 1e-10. Skips without a GPU.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <numeric>

#include "core/concat.h"
#include "engine/reference.h"
#include "engine/train_step.h"
#include "profiler/breakdown.h"

namespace sluice::engine::test {
namespace {

constexpr double kTolerance = 1e-10;
constexpr std::uint64_t kSeed = 7;
constexpr device::Device kGpu{device::DeviceKind::kCuda, 0};

struct Case {
  std::string model;
  int stages;
  int replicas;
  bool mixed;  // every second stage on a CPU device
};

std::vector<device::Device> devices_of(const Case& c) {
  std::vector<device::Device> devices;
  for (int slot = 0; slot < c.stages * c.replicas; ++slot) {
    const bool on_cpu = c.mixed && slot % c.stages % 2 == 0;
    devices.push_back(on_cpu ? device::Device{device::DeviceKind::kCpu, slot} : kGpu);
  }
  return devices;
}

class CudaParity : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    if (device::cuda_device_count() == 0) GTEST_SKIP() << "no CUDA device is visible";
  }
};

TEST_P(CudaParity, ThreeUpdatesGiveTheTensorsOfOneCpuDevice) {
  const Case& c = GetParam();
  const models::ModelOptions model = small_model(c.model);
  const optim::OptimizerOptions optimizer{.kind = "momentum", .momentum = 0.9, .weight_decay = 0.01};
  const bool normalises = c.model == "resnet8";
  ReferenceModel one_device(model);
  Composition grid = make_grid(model, "1f1b", c.stages, c.replicas, optimizer, devices_of(c));
  grid.plan.chunks = normalises ? 1 : 3;  // the reference normalises the whole batch
  TrainStep step(grid, {.seed = kSeed});
  for (std::int64_t number = 0; number < 3; ++number) {
    const pipeline::MicroBatch batch = make_batch(13 - number, number + 1);
    const nn::ForwardContext context{.training = true, .seed = kSeed, .step = number};
    const double loss = one_device.train(batch, context, optimizer, 0.05);
    EXPECT_NEAR(step.run(batch, number, 0.05).loss, loss, kTolerance * loss) << "step " << number;
  }
  const auto [error, tensor] = worst_error(model_tensors(grid), one_device.tensors());
  EXPECT_LE(error, kTolerance) << tensor;
}

INSTANTIATE_TEST_SUITE_P(Grid, CudaParity,
                         testing::Values(Case{"vit", 1, 1, false}, Case{"vit", 3, 2, false}, Case{"vit", 4, 1, true},
                                         Case{"vit", 2, 2, true}, Case{"toy_cnn", 2, 2, false},
                                         Case{"toy_cnn", 3, 2, true}, Case{"resnet8", 1, 1, false},
                                         Case{"resnet8", 3, 1, false}, Case{"resnet8", 4, 1, true}),
                         [](const auto& param_info) {
                           const Case& c = param_info.param;
                           return concat(c.model, "_", c.stages, "stages_", c.replicas, "replicas",
                                         c.mixed ? "_mixed" : "");
                         });

// Spans come from events on the stream, mapped onto the host's clock: they lie within the step, and add up to it.
TEST(CudaBreakdown, SpansOfAStreamLieWithinTheStepAndAddUpToIt) {
  if (device::cuda_device_count() == 0) GTEST_SKIP() << "no CUDA device is visible";
  constexpr Nanoseconds kClockError = 500'000;  // between the host's reading and the first event
  Composition grid = make_grid(small_model("vit"), "1f1b", 2, 2, {.kind = "sgd"}, {kGpu, kGpu, kGpu, kGpu});
  grid.plan.chunks = 3;
  TrainStep step(grid, {.seed = kSeed});
  Recorder& recorder = grid.executor->recorder();
  for (std::int64_t number = 0; number < 3; ++number) {
    recorder.clear();
    const Nanoseconds begin = now_ns();
    (void)step.run(make_batch(12, number + 1), number, 0.05);
    const StepSpans spans = recorder.collect(number, begin, now_ns());
    for (const StepSpans::Slot& slot : spans.slots) {
      int forwards = 0;
      for (const Span& span : slot.spans) {
        EXPECT_LE(span.begin, span.end);
        EXPECT_GE(span.begin, spans.begin - kClockError);
        EXPECT_LE(span.end, spans.end + kClockError);
        if (span.phase == Phase::kForward && span.end > span.begin) ++forwards;
      }
      EXPECT_EQ(forwards, 3);
    }
    for (const profiler::SlotBreakdown& stage : profiler::break_down(spans).slots) {
      EXPECT_EQ(std::accumulate(stage.parts.begin(), stage.parts.end(), Nanoseconds{0}), spans.end - spans.begin);
      EXPECT_GT(stage.forward(), 0);
      EXPECT_GT(stage.backward(), 0);
    }
  }
}

}  // namespace
}  // namespace sluice::engine::test
