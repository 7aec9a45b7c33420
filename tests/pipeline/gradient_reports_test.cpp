// When the executor tells a sync of a gradient: once it is whole, and early enough that its sum overlaps with backward.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include <ATen/ATen.h>

#include "nn/linear.h"
#include "nn/registry.h"
#include "pipeline/executor.h"
#include "pipeline/executor_cases.h"
#include "support/graph_fakes.h"
#include "support/toy_model.h"

namespace sluice::pipeline {
namespace {

using namespace executor_cases;  // NOLINT(google-build-using-namespace): written for these tests

// Remembers what each gradient was when it was reported.
class Witness final : public comm::ReplicaSync {
 public:
  explicit Witness(const Executor& executor) : executor_(executor) {}
  [[nodiscard]] bool begin_step(const comm::StepStart&) override { return false; }
  void on_grad_ready(ReplicaId replica, ParamId param) override {
    const std::scoped_lock lock(mutex_);
    for (int s = 0; s < executor_.stages(); ++s) {
      const FlatParameters& parameters = executor_.stage(replica, StageId{s}).parameters();
      for (const ParameterEntry& entry : parameters.entries()) {
        if (entry.id != param) continue;
        reported[{replica, StageId{s}}].push_back({entry, FlatParameters::view(parameters.gradients(), entry).clone()});
      }
    }
  }
  void on_backward_done(ReplicaId replica, StageId stage) override {
    const std::scoped_lock lock(mutex_);
    reported_before_the_end[{replica, stage}] = reported[{replica, stage}].size();
  }
  [[nodiscard]] comm::StepOutcome finish_step(const comm::Contribution& local) override { return {.total = local}; }

  [[nodiscard]] int processes() const override { return 1; }
  [[nodiscard]] int rank() const override { return 0; }
  void sum(const at::Tensor&) override {}
  void take_rank_0s(const at::Tensor&) override {}

  using StageKey = std::pair<ReplicaId, StageId>;
  std::map<StageKey, std::vector<std::pair<ParameterEntry, at::Tensor>>> reported;
  std::map<StageKey, std::size_t> reported_before_the_end;

 private:
  const Executor& executor_;
  std::mutex mutex_;
};

// tanh of a linear map, whose weight gradients a split backward defers; and a scale, whose gradient it does not.
class LinearLayer final : public nn::RegisteredLayer {
 public:
  LinearLayer(const std::string& name, std::uint64_t seed)
      : RegisteredLayer(name, {.seed = seed, .dtype = at::kDouble}),
        linear_(registry_, name, kWidth, kWidth, {nn::Init::uniform_fan_in(kWidth), nn::Init::uniform_fan_in(kWidth)}),
        scale_(&registry_.add_parameter(name + ".scale", {kWidth}, nn::Init::constant(1.25))) {}

  at::Tensor forward(const at::Tensor& x, const nn::ForwardContext& context) override {
    return at::tanh(linear_(x, context)) * scale_->value;
  }

 private:
  nn::Linear linear_;
  nn::Parameter* scale_;
};

LayerList make_linear_layers() {
  LayerList layers;
  for (int i = 0; i < kLayers; ++i)
    layers.push_back(std::make_unique<LinearLayer>("layer" + std::to_string(i), static_cast<std::uint64_t>(i)));
  return layers;
}

// So that an all-reduce overlaps with backward, also where a stage ends in W.
class ReportsOfGradients : public ::testing::TestWithParam<Case> {};

TEST_P(ReportsOfGradients, ComeWhenTheyAreWholeAndBeforeTheEndOfTheStage) {
  const auto& [name, devices, replicas] = GetParam();
  for (const bool recompute : {false, true}) {
    const Schedule schedule = schedule_of(name, devices, 8);
    const MicroBatch batch = test::make_toy_batch(8 * replicas, kWidth, 3);
    Executor executor(
        test::make_toy_grid(make_linear_layers, even_partition(schedule.stages), replicas, {.recompute = recompute}),
        test::cpu_grid(replicas, devices), stage_owners(schedule), {});
    const auto witness = std::make_shared<Witness>(executor);
    PassRequest request = training_pass(schedule, replicas, batch);
    request.sync = witness;
    executor.run(std::move(request));
    ASSERT_EQ(witness->reported_before_the_end.size(), static_cast<std::size_t>(replicas) * schedule.stages);
    for (const auto& [key, reported] : witness->reported) {
      const FlatParameters& parameters = executor.stage(key.first, key.second).parameters();
      EXPECT_EQ(reported.size(), parameters.entries().size());
      // Backward completes the last layers first, and so are buckets cut; a scale's gradient was not deferred.
      std::vector<int> weights;
      for (const auto& [entry, then] : reported) {
        if (entry.name.ends_with(".weight")) weights.push_back(index(entry.id));
      }
      EXPECT_TRUE(std::ranges::is_sorted(weights, std::greater{}));
      EXPECT_EQ(witness->reported_before_the_end.at(key), parameters.entries().size());
      for (const auto& [entry, then] : reported)
        EXPECT_TRUE(at::equal(then, FlatParameters::view(parameters.gradients(), entry))) << entry.name;
    }
  }
}

// Recorded work tells nobody anything when it runs again, and the host counts nothing. Here it does not even run again.
TEST_P(ReportsOfGradients, OfRecordedWorkComeInEveryPass) {
  const auto& [name, devices, replicas] = GetParam();
  const Schedule schedule = schedule_of(name, devices, 8);
  const MicroBatch batch = test::make_toy_batch(8 * replicas, kWidth, 3);
  Executor executor(test::make_toy_grid(make_linear_layers, even_partition(schedule.stages), replicas),
                    test::cpu_grid(replicas, devices), stage_owners(schedule), {});
  const FlopCount flops = executor.run(training_pass(schedule, replicas, batch)).flops;
  test::GraphLog log;
  const auto graphs = executor.make_graphs(test::fake_graphs<test::WorkDoneOnce>(log));
  for (int pass = 0; pass < 3; ++pass) {
    const auto witness = std::make_shared<Witness>(executor);
    PassRequest request = training_pass(schedule, replicas, batch);
    request.sync = witness;
    request.graphs = graphs;
    EXPECT_EQ(executor.run(std::move(request)).flops, flops);
    for (int r = 0; r < replicas; ++r) {
      for (int s = 0; s < schedule.stages; ++s) {
        const std::pair key(ReplicaId{r}, StageId{s});
        const Stage& stage = executor.stage(key.first, key.second);
        EXPECT_EQ(witness->reported[key].size(), stage.parameters().entries().size());
        EXPECT_EQ(witness->reported_before_the_end[key], stage.parameters().entries().size());
        EXPECT_EQ(stage.in_flight() + stage.deferred(), 0);
      }
    }
  }
  EXPECT_EQ(log.launches, 3 * log.records);
}

INSTANTIATE_TEST_SUITE_P(Grid, ReportsOfGradients, ::testing::ValuesIn(parity_cases()), name_of_case);

}  // namespace
}  // namespace sluice::pipeline
