#include "device/graph.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ATen/ATen.h>

#include "core/error.h"

namespace sluice::device {
namespace {

constexpr Device kCpu{DeviceKind::kCpu, 1}, kGpu{DeviceKind::kCuda, 0};

TEST(Graph, CpuDevicesRecordNone) {
  EXPECT_NO_THROW(require_graphs({kGpu, kGpu}));
  try {
    require_graphs({kGpu, kCpu});
    FAIL() << "accepted";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("cpu:1 is not a GPU"));
  }
  EXPECT_THROW((void)make_graph_sequence(Stream::make(kCpu)), BugError);
}

class GraphOnGpu : public testing::Test {
 protected:
  void SetUp() override {
    if (cuda_device_count() == 0) GTEST_SKIP() << "no CUDA device is visible";
  }

  using Tensors = std::vector<at::Tensor>;
  static at::Tensor run(Graph& graph, const Tensors& inputs) {
    for (std::size_t i = 0; i < inputs.size(); ++i) at::Tensor(graph.inputs()[i]).copy_(inputs[i]);
    graph.launch();
    return graph.outputs()[0].clone();
  }
};

TEST_F(GraphOnGpu, ReadsItsInputsAndMemoryWhenItRuns) {
  const Stream stream = Stream::make(kGpu);
  const StreamGuard guard(stream);
  const auto of_numbers = at::TensorOptions().device(at::kCUDA).dtype(at::kFloat);
  const at::Tensor factor = at::full({1}, 2, of_numbers), x = at::ones({1000}, of_numbers);
  const auto scaled = [&](const Tensors& in) { return Tensors{in[0] * factor, {}}; };
  static_cast<void>(scaled({x}));  // what kernels need at their first call
  const auto sequence = make_graph_sequence(stream);
  const auto graph = sequence->record({x, {}}, scaled);
  EXPECT_FALSE(graph->inputs()[1].defined());
  EXPECT_FALSE(graph->outputs()[1].defined());
  for (const double number : {2.0, 3.0, -1.0}) {
    factor.fill_(number);
    EXPECT_TRUE(at::equal(run(*graph, {x * number}), x * (number * number)));
  }
}

TEST_F(GraphOnGpu, ASequenceSharesMemory) {
  const Stream stream = Stream::make(kGpu);
  const StreamGuard guard(stream);
  const at::Tensor x = at::ones({1 << 20}, at::TensorOptions().device(at::kCUDA).dtype(at::kFloat));
  at::Tensor kept;
  const auto first = [&](const Tensors& in) {
    kept = in[0] * 2;
    return Tensors{in[0] + 1};
  };
  const auto second = [&](const Tensors& in) {
    const at::Tensor sum = in[0] + kept;
    kept.reset();
    return Tensors{sum};
  };
  static_cast<void>(second(first({x})));
  const auto sequence = make_graph_sequence(stream);
  const auto forward = sequence->record({x}, first);
  const auto backward = sequence->record({x}, second);
  EXPECT_FALSE(kept.defined());
  for (int pass = 1; pass <= 3; ++pass) {
    EXPECT_TRUE(at::equal(run(*forward, {x * pass}), x * pass + 1));
    EXPECT_TRUE(at::equal(run(*backward, {x}), x * (2 * pass + 1)));
  }
}

}  // namespace
}  // namespace sluice::device
