// test_syncs: replica syncs that do what a parameter server, local SGD or an anytime batch would do, in one process.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "comm/replica_sync.h"
#include "ddp/local_sum.h"
#include "engine/make_sync.h"

namespace sluice::engine::test {

// Adds up the replicas of this process, and is asked what comes of it.
class LocalSync : public comm::ReplicaSync {
 public:
  explicit LocalSync(SyncRequest request) : sum_(std::move(request.stages), {.bucket_bytes = 400}) {}

  [[nodiscard]] bool begin_step(const comm::StepStart& start) override {
    start_ = start;
    sum_.begin_step();
    return before_step();
  }
  void on_grad_ready(ReplicaId replica, ParamId param) override { sum_.on_grad_ready(replica, param); }
  void on_backward_done(ReplicaId replica, StageId stage) override { sum_.on_backward_done(replica, stage); }
  [[nodiscard]] comm::StepOutcome finish_step(const comm::Contribution& local) override {
    sum_.finish_step();
    comm::StepOutcome outcome{.total = local};
    after_step(outcome);
    return outcome;
  }
  [[nodiscard]] bool may_skip() const override { return true; }
  [[nodiscard]] int processes() const override { return 1; }
  [[nodiscard]] int rank() const override { return 0; }
  void sum(const at::Tensor&) override {}
  void take_rank_0s(const at::Tensor&) override {}

 protected:
  virtual bool before_step() { return false; }
  virtual void after_step(comm::StepOutcome&) {}
  [[nodiscard]] const comm::StepStart& start() const { return start_; }
  [[nodiscard]] std::int64_t step() const { return start_.step; }
  // A parameter's part of replica 0's values or gradients.
  [[nodiscard]] static at::Tensor part_of(const std::vector<at::Tensor>& flat, const comm::Extent& extent) {
    return flat.front().narrow(0, extent.begin, extent.end - extent.begin);
  }
  template <typename Visit>
  void for_each_extent(const Visit& visit) const {
    for (const comm::SyncedStage& stage : sum_.stages()) {
      for (const comm::Extent& extent : stage.extents) visit(stage, extent);
    }
  }

 private:
  ddp::LocalSum sum_;
  comm::StepStart start_;
};

// The values of the parameters that are not tied, as they are when it is asked for them first.
class WithInitialWeights : public LocalSync {
 public:
  explicit WithInitialWeights(SyncRequest request) : LocalSync(std::move(request)) {}

 protected:
  void put_back_initial_weights() {
    const at::NoGradGuard no_grad;
    for_each_extent([&](const comm::SyncedStage& stage, const comm::Extent& extent) {
      if (extent.tied_to.empty()) part_of(stage.values, extent).copy_(initial_.at(extent.name));
    });
  }
  bool before_step() override {
    if (step() > 0) return false;
    for_each_extent([&](const comm::SyncedStage& stage, const comm::Extent& extent) {
      initial_[extent.name] = part_of(stage.values, extent).clone();
    });
    return false;
  }

 private:
  std::map<std::string, at::Tensor> initial_;
};

class ReplacesWeightsBeforeTheThirdStep final : public WithInitialWeights {
 public:
  using WithInitialWeights::WithInitialWeights;
  bool before_step() override {
    static_cast<void>(WithInitialWeights::before_step());
    if (step() == 2) put_back_initial_weights();
    return step() == 2;
  }
};

class ReplacesWeightsAfterTheThirdStep final : public WithInitialWeights {
 public:
  using WithInitialWeights::WithInitialWeights;
  void after_step(comm::StepOutcome& outcome) override {
    if (step() != 2) return;
    put_back_initial_weights();
    outcome.update = comm::Update::kSkipped;
    outcome.weights_replaced = true;
  }
};

// As a sync does that averages weights over processes now and then.
class ReplacesWeightsOnceTheThirdUpdateIsDone final : public WithInitialWeights {
 public:
  using WithInitialWeights::WithInitialWeights;
  [[nodiscard]] bool on_updated() override {
    if (step() == 2) put_back_initial_weights();
    return step() == 2;
  }
};

class HalvesGradients final : public LocalSync {
 public:
  using LocalSync::LocalSync;
  void after_step(comm::StepOutcome& outcome) override { outcome.divisor = 2; }
};

// Gradient descent of its own.
class KeepsTheOptimizer : public LocalSync {
 public:
  using LocalSync::LocalSync;
  void after_step(comm::StepOutcome& outcome) override {
    const at::NoGradGuard no_grad;
    std::map<std::string, at::Tensor> gradients;  // by the name of the owner
    for_each_extent([&](const comm::SyncedStage& stage, const comm::Extent& extent) {
      at::Tensor& sum = gradients[extent.tied_to.empty() ? extent.name : extent.tied_to];
      const at::Tensor own = part_of(stage.gradients, extent);
      sum = sum.defined() ? sum + own : own.clone();
    });
    for_each_extent([&](const comm::SyncedStage& stage, const comm::Extent& extent) {
      const double lr = start().lr / (start().gradient_scale * static_cast<double>(outcome.total.targets));
      if (extent.tied_to.empty()) part_of(stage.values, extent).sub_(gradients.at(extent.name), lr);
    });
    outcome.update = comm::Update::kElsewhere;
    outcome.weights_replaced = true;
  }
};

class SkipsOddSteps final : public LocalSync {
 public:
  using LocalSync::LocalSync;
  void after_step(comm::StepOutcome& outcome) override {
    if (step() % 2 == 1) outcome.update = comm::Update::kSkipped;
  }
};

// All of replica 0's micro-batches, and the first of each other replica's.
class AdmitsFew final : public LocalSync {
 public:
  using LocalSync::LocalSync;
  [[nodiscard]] static bool takes(ReplicaId replica, MicroBatchId micro_batch) {
    return replica == ReplicaId{0} || micro_batch == MicroBatchId{0};
  }
  [[nodiscard]] bool admits(ReplicaId replica, MicroBatchId micro_batch) override {
    return takes(replica, micro_batch);
  }
};

class AdmitsFewAndKeepsTheOptimizer final : public KeepsTheOptimizer {
 public:
  using KeepsTheOptimizer::KeepsTheOptimizer;
  [[nodiscard]] bool admits(ReplicaId replica, MicroBatchId micro_batch) override {
    return AdmitsFew::takes(replica, micro_batch);
  }
};

class AdmitsNone final : public LocalSync {
 public:
  using LocalSync::LocalSync;
  [[nodiscard]] bool admits(ReplicaId, MicroBatchId) override { return false; }
  void after_step(comm::StepOutcome& outcome) override { outcome.update = comm::Update::kSkipped; }
};

template <typename Sync>
SyncFactory making() {
  return [](SyncRequest request) { return std::make_shared<Sync>(std::move(request)); };
}

}  // namespace sluice::engine::test
