// engine: the only owner of composed stages. It runs training steps and evaluations on a Plan, and takes on another
// Plan in the running process: another cut, other numbers of stages, replicas and chunks, another schedule, other
// recomputation. Parameters, optimizer state, running statistics and the number of optimizer steps carry over; what
// depends on numbers alone (data order, dropout, learning rate) is the caller's and does not notice.
// The recorder, the device threads, the communicators and the devices' memory pools outlive a composition.
// Not here: which plan (tune/), the data (data/), files (storage/).
// Threads: one. Every process of a run makes the same calls in the same order.
// Errors: those of compose() and of TrainStep. apply(): see there.
#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/error.h"
#include "engine/communicators.h"
#include "engine/compose.h"
#include "engine/device_choice.h"
#include "engine/state.h"
#include "engine/train_step.h"

namespace sluice::engine {

struct EngineOptions {
  // All but the devices and threads, which devices_of() says, and the device threads and the recorder, which are the
  // engine's.
  ComposeOptions compose;
  TrainStepOptions step;
  // For plans of any shape; ConfigError where there are too few devices.
  std::function<DeviceChoice(const Plan&)> devices_of;
};

// Of Engine::apply(): the plan was not taken on, and the one before is in place, with the same state, in every process.
// With the exit code of what was wrong; in a process where nothing was, that of a lost peer.
struct PlanRefused : Error {
  using Error::Error;
};

class Engine {
 public:
  Engine(const Plan& plan, EngineOptions options);
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  [[nodiscard]] const Plan& plan() const { return composition_.plan; }
  [[nodiscard]] const Composition& composition() const { return composition_; }
  [[nodiscard]] Composition& composition() { return composition_; }
  // Valid until apply().
  [[nodiscard]] TrainStep& step() { return *step_; }
  [[nodiscard]] Recorder& recorder() { return *options_.compose.recorder; }

  // TrainStep::take_gradient_norms(). The sums begin anew with each composition: take them before apply(), which
  // forgets them unless it changes the number of chunks alone. No State has them.
  [[nodiscard]] std::vector<double> take_gradient_norms() { return step_->take_gradient_norms(); }

  // All of it that is not in the plan; of replica 0. Copies in the memory of the CPU, which no limit counts.
  [[nodiscard]] State capture() const;
  // False after an apply() that has failed: nothing of the state can be read.
  [[nodiscard]] bool holds_state() const { return composition_.executor != nullptr; }
  // Keeps the buffers as they are now for model_between_steps(), because a step that may be cut off changes them;
  // until forget_buffers().
  void remember_buffers() { remembered_.emplace(composition_, BufferSnapshot::Replicas::kFirst); }
  void forget_buffers() { remembered_.reset(); }
  // model_tensors(), with the buffers that are remembered, if any are. Any thread, while nobody changes weights or
  // plan.
  [[nodiscard]] storage::TensorMap model_between_steps() const;
  // `source` names it in errors.
  void load(const State& state, const std::string& source);

  // Between two steps. PlanRefused where one process refuses the plan or cannot compose it; DivergedError where the
  // state is not finite, and the old plan stays. After any other error the
  // engine is of no more use: a peer is lost, or the old plan cannot be put back either, which is a BugError.
  void apply(Plan plan);
  // Throws where it is known beforehand that apply() would refuse the plan in this process.
  void check_feasible(const Plan& plan) const { check_feasible(plan, options_.devices_of(plan)); }

 private:
  [[nodiscard]] ComposeOptions options_on(const DeviceChoice& where) const;
  void compose_on(const Plan& plan, const DeviceChoice& where);
  // Gives the composition up for one of `plan` that holds `state`. What went wrong; null where nothing did.
  std::exception_ptr recompose(const Plan& plan, const DeviceChoice& where, const State& state);
  void check_feasible(const Plan& plan, const DeviceChoice& where) const;
  // Whether something failed in some process: all of them learn it.
  [[nodiscard]] bool failed_somewhere(bool failed_here) const;

  EngineOptions options_;  // with the devices and threads of the plan
  Composition composition_;
  std::optional<TrainStep> step_;
  std::optional<BufferSnapshot> remembered_;
};

}  // namespace sluice::engine
