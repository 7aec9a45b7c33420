// action_runner: runs the device part of a thread's actions: directly (DirectActions) or as recorded work
// (action_graphs.h).
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "core/ids.h"
#include "device/graph.h"
#include "pipeline/schedule/action.h"
#include "pipeline/stage.h"

namespace sluice::pipeline {

// A part of an action that is one piece of work; a forward on the last stage has two parts.
enum class ActionPart { kForward, kLoss, kBackward, kWeightGradient };

// Values that differ between passes.
struct PassValues {
  std::int64_t step = 0;
  double gradient_scale = 1;
  int micro_batches = 0;
};

class ActionRunner {
 public:
  virtual ~ActionRunner() = default;

  // Call first in each pass, and before the first backward of each stage.
  virtual void begin_pass(const PassValues& values) = 0;
  virtual void begin_gradients(Stage& stage) const = 0;

  // Returns the outputs of `work`. The next action may overwrite their memory: lasting() returns a tensor that is safe.
  // `work` must not refer to the pass, because recorded work outlives it.
  [[nodiscard]] virtual Tensors run(const Action& action, ActionPart part, const Tensors& inputs,
                                    const device::GraphWork& work) = 0;
  [[nodiscard]] virtual at::Tensor lasting(const at::Tensor& output) const = 0;
  [[nodiscard]] Tensors all_lasting(Tensors outputs) const {
    for (at::Tensor& output : outputs) output = lasting(output);
    return outputs;
  }

  // Gradients are reported either within the work that completes them or after it: within() is what the work calls, and
  // report_after() follows the work.
  [[nodiscard]] virtual GradientReady within(const GradientReady& reports) const = 0;
  virtual void report_after(const Stage& stage, const GradientReady& reports) const = 0;

  // Sets what the work reads and notifies besides its inputs.
  virtual void prepare(StagePass& pass, ActionMarks* marks) const = 0;
  [[nodiscard]] virtual GradientScale gradient_scale() const = 0;
  [[nodiscard]] virtual at::Tensor sample_ids(MicroBatchId micro_batch, const at::Tensor& ids) = 0;

  // True while actions are recorded. LibTorch then does not track which streams read a tensor
  // (docs/how-to/gpu_check.md).
  [[nodiscard]] virtual bool is_recording() const = 0;
};

class DirectActions final : public ActionRunner {
 public:
  void begin_pass(const PassValues& values) override { values_ = values; }
  void begin_gradients(Stage& stage) const override { stage.begin_gradients(); }
  [[nodiscard]] Tensors run(const Action& /*action*/, ActionPart /*part*/, const Tensors& inputs,
                            const device::GraphWork& work) override {
    return work(inputs);
  }
  [[nodiscard]] at::Tensor lasting(const at::Tensor& output) const override { return output; }
  [[nodiscard]] GradientReady within(const GradientReady& reports) const override { return reports; }
  void report_after(const Stage& /*stage*/, const GradientReady& /*reports*/) const override {}
  void prepare(StagePass& pass, ActionMarks* marks) const override { pass.marks = marks; }
  [[nodiscard]] GradientScale gradient_scale() const override { return {.number = values_.gradient_scale}; }
  [[nodiscard]] at::Tensor sample_ids(MicroBatchId /*micro_batch*/, const at::Tensor& ids) override { return ids; }
  [[nodiscard]] bool is_recording() const override { return false; }

 private:
  PassValues values_;
};

}  // namespace sluice::pipeline
