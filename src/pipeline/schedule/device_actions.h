// device_actions: builds the action list of one device. Each operation of a stage takes its micro-batches in order.
#pragma once

#include <map>
#include <utility>
#include <vector>

#include "pipeline/schedule/action.h"

namespace sluice::pipeline {

class DeviceActions {
 public:
  // Skips micro-batches from `micro_batches` on, so an order made for a full pipeline also fits a shorter step.
  explicit DeviceActions(int micro_batches) : micro_batches_(micro_batches) {}

  void forward(int stage);
  void backward(int stage);
  void input_gradient(int stage);
  // Takes the stage's oldest micro-batch without W.
  void weight_gradient(int stage);
  void overlapped(int forward_stage, int backward_stage);
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
