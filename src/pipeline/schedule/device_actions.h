// device_actions: writes the actions of one device, for the generators. Each operation of a stage takes its
// micro-batches in order, so that a generator says only which stage does what next.
#pragma once

#include <map>
#include <utility>
#include <vector>

#include "pipeline/schedule/action.h"

namespace sluice::pipeline {

class DeviceActions {
 public:
  // Actions of micro-batches from `micro_batches` on are left out: an order that is drawn for a full pipeline fits a
  // shorter step too.
  explicit DeviceActions(int micro_batches) : micro_batches_(micro_batches) {}

  void forward(int stage);
  void backward(int stage);
  void input_gradient(int stage);
  // The oldest micro-batch of the stage that has no W yet.
  void weight_gradient(int stage);
  // F of one stage and B of another as a pair.
  void overlapped(int forward_stage, int backward_stage);
  // Any action, without counting.
  void add(Op op, int stage, int micro_batch);

  [[nodiscard]] int backwards(int stage) { return of_stage_[stage].backwards; }  // B and I so far
  [[nodiscard]] int weights(int stage) { return of_stage_[stage].weights; }      // B and W so far
  [[nodiscard]] std::vector<Action> take() && { return std::move(actions_); }

 private:
  struct Counts {
    int forwards = 0;
    int backwards = 0;
    int weights = 0;
  };

  int micro_batches_;
  std::map<int, Counts> of_stage_;
  std::vector<Action> actions_;
};

}  // namespace sluice::pipeline
