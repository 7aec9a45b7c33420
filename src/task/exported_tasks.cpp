#include "task/exported_tasks.h"

#include <utility>

#include <ATen/ATen.h>

namespace sluice::task {
namespace {

class WithInputs final : public Task {
 public:
  WithInputs(TaskPtr task, std::vector<std::string> inputs, bool is_map)
      : task_(std::move(task)), inputs_(std::move(inputs)), is_map_(is_map) {}

  [[nodiscard]] const std::vector<std::string>& inputs() const override { return inputs_; }
  [[nodiscard]] const std::vector<std::string>& targets() const override { return task_->targets(); }
  [[nodiscard]] at::Tensor loss(const Tensors& outputs, const Tensors& targets) const override {
    return task_->loss(logits_of(outputs), targets);
  }
  [[nodiscard]] std::int64_t count_targets(const Tensors& targets) const override {
    return task_->count_targets(targets);
  }
  [[nodiscard]] at::Tensor count(const Tensors& outputs, const Tensors& targets) const override {
    return task_->count(logits_of(outputs), targets);
  }
  [[nodiscard]] bool counts_every_step() const override { return task_->counts_every_step(); }
  [[nodiscard]] std::vector<double> sums_of(const at::Tensor& counted) const override {
    return task_->sums_of(counted);
  }
  [[nodiscard]] const Scores& scores() const override { return task_->scores(); }

 protected:
  [[nodiscard]] std::size_t number_of_sums() const override { return task_->no_sums().size(); }

 private:
  [[nodiscard]] Tensors logits_of(const Tensors& outputs) const {
    return {is_map_ ? outputs[0].movedim(1, -1) : outputs[0]};
  }

  const TaskPtr task_;
  const std::vector<std::string> inputs_;
  const bool is_map_;
};

class OwnLoss final : public Task {
 public:
  OwnLoss(std::vector<std::string> inputs, std::vector<std::string> targets, CountTargets count)
      : inputs_(std::move(inputs)), targets_(std::move(targets)), count_(std::move(count)) {}

  [[nodiscard]] const std::vector<std::string>& inputs() const override { return inputs_; }
  [[nodiscard]] const std::vector<std::string>& targets() const override { return targets_; }
  [[nodiscard]] at::Tensor loss(const Tensors& outputs, const Tensors& targets) const override {
    const std::int64_t count = count_(targets);
    // PyTorch's mean over no target is NaN, but a micro-batch may have none.
    return count > 0 ? outputs[0] * count : outputs[0].nan_to_num() * 0;
  }
  [[nodiscard]] std::int64_t count_targets(const Tensors& targets) const override { return count_(targets); }
  [[nodiscard]] at::Tensor count(const Tensors&, const Tensors&) const override { return at::empty({0}, at::kDouble); }
  [[nodiscard]] std::vector<double> sums_of(const at::Tensor&) const override { return {}; }
  [[nodiscard]] const Scores& scores() const override { return scores_; }

 protected:
  [[nodiscard]] std::size_t number_of_sums() const override { return 0; }

 private:
  const std::vector<std::string> inputs_, targets_;
  const CountTargets count_;
  const Scores scores_;
};

}  // namespace

TaskPtr with_inputs(TaskPtr task, std::vector<std::string> inputs, bool is_map) {
  return std::make_shared<WithInputs>(std::move(task), std::move(inputs), is_map);
}

TaskPtr make_own_loss(std::vector<std::string> inputs, std::vector<std::string> targets, CountTargets count) {
  return std::make_shared<OwnLoss>(std::move(inputs), std::move(targets), std::move(count));
}

}  // namespace sluice::task
