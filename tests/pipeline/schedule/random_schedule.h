// random_schedule: orders that no generator makes: any owner of each stage, any order in which results allow the
// actions to run, backwards whole or in two parts, some pairs.
#pragma once

#include <algorithm>
#include <random>
#include <vector>

#include "pipeline/schedule/action.h"
#include "pipeline/schedule/shapes.h"

namespace sluice::pipeline::test {

struct MostOf {
  int stages = 1;
  int micro_batches = 1;
  int devices = 1;
};

class RandomSchedule {
 public:
  RandomSchedule(Draw& draw, const MostOf& most)
      : draw_(draw),
        stages_(draw.between(1, most.stages)),
        micro_batches_(draw.between(1, most.micro_batches)),
        in_order_(draw.between(0, 3) > 0) {
    const int devices = draw.between(1, std::min(stages_, most.devices));
    for (int stage = 0; stage < stages_; ++stage) {
      owners_.push_back(stage < devices ? stage : draw.between(0, devices - 1));
      done_.emplace_back(static_cast<std::size_t>(micro_batches_));
    }
    std::ranges::shuffle(owners_, std::mt19937(static_cast<unsigned>(draw.between(0, 1 << 20))));
    schedule_ = {"random", stages_, micro_batches_, {}};
    schedule_.devices.resize(static_cast<std::size_t>(devices));
  }

  // Complete and in an order that runs, but for two things that validate() must find: micro-batches may overtake each
  // other on the way to another device, and the parts of a pair may need each other by way of other devices.
  Schedule make() && {
    for (auto ready = ready_actions(); !ready.empty(); ready = ready_actions())
      append(ready[static_cast<std::size_t>(draw_.between(0, static_cast<int>(ready.size()) - 1))]);
    return std::move(schedule_);
  }

 private:
  struct Done {
    bool forward = false;
    bool gradient = false;  // B or I
    bool split = false;     // by I
    bool weight = false;
  };

  [[nodiscard]] const Done& at(int stage, int m) const {
    return done_[static_cast<std::size_t>(stage)][static_cast<std::size_t>(m)];
  }

  [[nodiscard]] std::vector<Action> ready_actions() const {
    std::vector<Action> ready;
    for (int stage = 0; stage < stages_; ++stage) {
      const auto first_without = [&](auto member) {
        return std::ranges::find(done_[static_cast<std::size_t>(stage)], false, member) -
               done_[static_cast<std::size_t>(stage)].begin();
      };
      for (int m = 0; m < micro_batches_; ++m) {
        const auto add = [&](Op op) {
          ready.push_back({op, static_cast<StageId>(stage), static_cast<MicroBatchId>(m)});
        };
        if (forward_is_ready(stage, m) && (!in_order_ || first_without(&Done::forward) == m)) add(Op::kForward);
        if (gradient_is_ready(stage, m) && (!in_order_ || first_without(&Done::gradient) == m)) {
          add(Op::kBackward);
          add(Op::kInputGradient);
        }
        if (at(stage, m).split && !at(stage, m).weight) add(Op::kWeightGradient);
      }
    }
    return ready;
  }

  [[nodiscard]] bool forward_is_ready(int stage, int m) const {
    return !at(stage, m).forward && (stage == 0 || at(stage - 1, m).forward);
  }
  [[nodiscard]] bool gradient_is_ready(int stage, int m) const {
    return at(stage, m).forward && !at(stage, m).gradient && (stage + 1 == stages_ || at(stage + 1, m).gradient);
  }

  void append(Action action) {
    const auto stage = static_cast<std::size_t>(index(action.stage));
    Done& own = done_[stage][static_cast<std::size_t>(index(action.micro_batch))];
    own.forward = true;  // of whatever comes later it is so already
    own.gradient = own.gradient || makes_input_gradient(action.op);
    own.split = own.split || action.op == Op::kInputGradient;
    own.weight = own.weight || action.op == Op::kWeightGradient;
    auto& actions = schedule_.devices[static_cast<std::size_t>(owners_[stage])];
    const bool may_pair = !actions.empty() && actions.back().op == Op::kForward && makes_input_gradient(action.op);
    if (may_pair && draw_.between(0, 7) == 0) actions.back().overlaps_next = true;
    actions.push_back(action);
  }

  Draw& draw_;
  int stages_;
  int micro_batches_;
  bool in_order_;            // the micro-batches of a stage
  std::vector<int> owners_;  // [stage]
  std::vector<std::vector<Done>> done_;
  Schedule schedule_;
};

inline Schedule random_schedule(Draw& draw, const MostOf& most) { return RandomSchedule(draw, most).make(); }

}  // namespace sluice::pipeline::test
