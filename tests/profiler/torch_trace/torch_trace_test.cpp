#include <ATen/ATen.h>
#include <ATen/record_function.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <condition_variable>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <thread>

#include <nlohmann/json.hpp>

#include "profiler/arbiter.h"
#include "profiler/operators/operator_watch.h"
#include "profiler/torch_trace/torch_profiler.h"
#include "profiler/torch_trace/trace_marks.h"

namespace sluice::torch_trace {
namespace {

using profiler::Pass;

constexpr ActionTag kForward{Phase::kForward, ReplicaId{0}, StageId{1}, MicroBatchId{2}};
constexpr ActionTag kLoss{Phase::kLoss, ReplicaId{0}, StageId{1}, MicroBatchId{2}};
constexpr ActionTag kBackward{Phase::kBackward, ReplicaId{0}, StageId{1}, MicroBatchId{2}};
constexpr ActionTag kAllReduce{Phase::kAllReduce, ReplicaId{0}, StageId{1}};

// What a stage's thread does in a step.
void work_as_a_stage(ActionMarks& marks) {
  const at::Tensor x = at::ones({8, 8}), weight = at::ones({8, 8}).requires_grad_();
  at::Tensor y;
  marks.enter(kForward);
  {
    const LayerMark layer(&marks, "first");
    y = at::mm(x, weight);
  }
  marks.leave();
  marks.enter(kLoss);
  y = at::mm(y, weight).sum();
  marks.leave();
  marks.enter(kBackward);
  torch::autograd::backward({y}, {});
  marks.enter(kAllReduce);
  x.sigmoid_();
  marks.leave();
  marks.leave();
}

nlohmann::json read(const std::filesystem::path& file) { return nlohmann::json::parse(std::ifstream(file)); }

class TorchTrace : public testing::Test {
 protected:
  std::filesystem::path file = std::filesystem::path(testing::TempDir()) / "torch_trace_test.json";
  std::string why;

  void TearDown() override { std::filesystem::remove(file); }
};

TEST_F(TorchTrace, AThreadThatWasThereBeforeIsSeen) {
  std::mutex mutex;
  std::condition_variable changed;
  bool begins = false;
  TraceMarks marks(nullptr);
  std::thread stage([&] {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return begins; });
    work_as_a_stage(marks);
  });
  const auto torch = TorchProfiler::start(/*with_gpus=*/false, why);
  ASSERT_NE(torch, nullptr) << why;
  torch->begin_step(7);
  {
    const std::scoped_lock lock(mutex);
    begins = true;
  }
  changed.notify_all();
  stage.join();
  torch->end_step();
  torch->stop();
  at::mm(at::ones({2, 2}), at::ones({2, 2}));  // after its end
  torch->save(file);

  std::map<std::string, int> bars;
  std::set<std::int64_t> threads;
  const nlohmann::json trace = read(file);
  for (const auto& event : trace.at("traceEvents")) {
    if (event.value("ph", "") != "X") continue;
    ++bars[event.at("name").get<std::string>()];
    if (event.at("name") == "aten::mm") threads.insert(event.at("tid").get<std::int64_t>());
  }
  EXPECT_EQ(bars["ProfilerStep#7"], 1);
  EXPECT_EQ(bars["forward, replica 0 stage 1, micro-batch 2"], 1);
  EXPECT_EQ(bars["backward, replica 0 stage 1, micro-batch 2"], 1);
  EXPECT_EQ(bars["all_reduce, replica 0 stage 1"], 1);
  EXPECT_EQ(bars["first"], 1);
  EXPECT_EQ(bars["aten::mm"], 5) << "two forward, three backward";
  EXPECT_EQ(threads.size(), 1U);
  EXPECT_FALSE(at::hasCallbacks());
}

TEST_F(TorchTrace, ItsMarksTellTheWatchWhereTheThreadIs) {
  operators::OperatorWatch watch(operators::OperatorWatch::Threads::kAll);
  TraceMarks marks(&watch);
  std::thread([&] { work_as_a_stage(marks); }).join();
  std::map<std::pair<std::string, Pass>, std::uint64_t> products;
  for (const auto& [key, sum] : watch.take()) {
    EXPECT_NE(key.name, "aten::sigmoid_") << "of the sum over replicas";
    if (key.name == "aten::mm") products[{marks.layers().name(key.layer), key.pass}] += sum.calls;
  }
  const std::map<std::pair<std::string, Pass>, std::uint64_t> expected{{{"first", Pass::kForward}, 1},
                                                                       {{"loss", Pass::kForward}, 1},
                                                                       {{"first", Pass::kBackward}, 1},
                                                                       {{"loss", Pass::kBackward}, 2}};
  EXPECT_EQ(products, expected);
}

TEST_F(TorchTrace, WhereAnotherClientHasCuptiItIsNamed) {
  {
    const profiler::CuptiClaim ours(profiler::GpuProfiler::kCupti);
    EXPECT_EQ(TorchProfiler::start(/*with_gpus=*/true, why), nullptr);
    EXPECT_EQ(why, "another client has CUPTI: Sluice's CUPTI session");
    EXPECT_NE(TorchProfiler::start(/*with_gpus=*/false, why), nullptr) << "it needs no CUPTI";
  }
  EXPECT_EQ(profiler::holder_of_cupti(), profiler::GpuProfiler::kOff);
}

TEST_F(TorchTrace, OneThatIsNotSavedLeavesNothingOn) {
  for (int i = 0; i < 2; ++i) {
    const auto torch = TorchProfiler::start(/*with_gpus=*/false, why);
    ASSERT_NE(torch, nullptr) << why;
    EXPECT_TRUE(at::hasCallbacks());
    torch->begin_step(1);
  }
  EXPECT_FALSE(at::hasCallbacks());
}

}  // namespace
}  // namespace sluice::torch_trace
