// When the executor tells a sync of a gradient: once it is whole, and early enough that its sum overlaps with backward.
#include <gtest/gtest.h>

#include <map>
#include <mutex>

#include <ATen/ATen.h>

#include "pipeline/executor.h"
#include "pipeline/executor_cases.h"
#include "support/toy_model.h"

namespace sluice::pipeline {
namespace {

using namespace executor_cases;  // NOLINT(google-build-using-namespace): written for these tests

// Remembers what each gradient was when it was reported.
class Witness final : public comm::ReplicaSync {
 public:
  explicit Witness(const Executor& executor) : executor_(executor) {}
  [[nodiscard]] bool begin_step() override { return false; }
  void on_grad_ready(ReplicaId replica, ParamId param) override {
    const std::scoped_lock lock(mutex_);
    for (int s = 0; s < executor_.stages(); ++s) {
      const FlatParameters& parameters = executor_.stage(replica, StageId{s}).parameters();
      for (const ParameterSlot& slot : parameters.slots()) {
        if (slot.id != param) continue;
        reported[{replica, StageId{s}}].push_back({slot, FlatParameters::view(parameters.gradients(), slot).clone()});
      }
    }
  }
  void on_backward_done(ReplicaId replica, StageId stage) override {
    const std::scoped_lock lock(mutex_);
    reported_before_the_end[{replica, stage}] = reported[{replica, stage}].size();
  }
  [[nodiscard]] comm::StepOutcome finish_step(const comm::Contribution& local) override { return {.total = local}; }

  using Place = std::pair<ReplicaId, StageId>;
  std::map<Place, std::vector<std::pair<ParameterSlot, at::Tensor>>> reported;
  std::map<Place, std::size_t> reported_before_the_end;

 private:
  const Executor& executor_;
  std::mutex mutex_;
};

// So that an all-reduce overlaps with backward, also where a stage ends in W.
class ReportsOfGradients : public ::testing::TestWithParam<Case> {};

TEST_P(ReportsOfGradients, ComeWhenTheyAreWholeAndBeforeTheEndOfTheStage) {
  const auto& [name, devices, replicas] = GetParam();
  for (const bool recompute : {false, true}) {
    const Schedule schedule = schedule_of(name, devices, 8);
    const MicroBatch batch = test::make_toy_batch(8 * replicas, kWidth, 3);
    const auto layers_of = [] { return test::make_toy_layers(kLayers, kWidth, 1); };
    Executor executor(
        test::make_toy_grid(layers_of, even_partition(schedule.stages), replicas, {.recompute = recompute}),
        test::cpu_grid(replicas, devices), stage_owners(schedule), {});
    const auto witness = std::make_shared<Witness>(executor);
    PassRequest request = training_pass(schedule, replicas, batch);
    request.sync = witness;
    executor.run(std::move(request));
    ASSERT_EQ(witness->reported_before_the_end.size(), static_cast<std::size_t>(replicas) * schedule.stages);
    for (const auto& [place, reported] : witness->reported) {
      const FlatParameters& parameters = executor.stage(place.first, place.second).parameters();
      EXPECT_EQ(reported.size(), parameters.slots().size());
      EXPECT_EQ(witness->reported_before_the_end.at(place), parameters.slots().size());
      for (const auto& [slot, then] : reported)
        EXPECT_TRUE(at::equal(then, FlatParameters::view(parameters.gradients(), slot))) << slot.name;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Grid, ReportsOfGradients, ::testing::ValuesIn(parity_cases()), name_of_case);

}  // namespace
}  // namespace sluice::pipeline
