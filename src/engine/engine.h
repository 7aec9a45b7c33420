// engine: the only owner of composed stages. It runs training steps and evaluations on a Plan, and can change to
// another Plan in the running process. Parameters, optimizer state, running statistics and the number of optimizer
// steps carry over, as do recorder, device threads, communicators and memory pools. Data order, dropout and learning
// rate depend on numbers that the caller keeps.
// Threads: one. Every process makes the same calls in the same order. Errors: those of compose(), TrainStep and
// apply().
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
  // The engine sets its devices and threads (from devices_of()), its device threads and its recorder.
  ComposeOptions compose;
  // Makes the layers of a later plan, which takes over the state: values are not needed (meta tensors). Null:
  // ComposeOptions::make_layers.
  std::function<pipeline::LayerList()> make_layers_without_values = nullptr;
  TrainStepOptions step;
  // Chooses devices for plans of any shape; ConfigError if there are too few devices.
  std::function<DeviceChoice(const Plan&)> devices_of;
};

// Thrown by Engine::apply(): every process keeps the previous plan. Exit code: that of the error or of a lost peer.
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

  // Call before apply(), which discards the sums unless it changes only chunks or shares.
  [[nodiscard]] std::vector<double> take_gradient_norms() { return step_->take_gradient_norms(); }

  // State that is not in the plan, from replica 0: copies in CPU memory that do not count against a limit.
  [[nodiscard]] State capture() const;
  // False after an apply() that failed: no state can be read.
  [[nodiscard]] bool holds_state() const { return composition_.executor != nullptr; }
  // Keeps the current buffers for model_between_steps() before a step that may be cut off.
  void remember_buffers() { remembered_.emplace(composition_, BufferSnapshot::Replicas::kFirst); }
  void forget_buffers() { remembered_.reset(); }
  // model_tensors() with the remembered buffers, if any. Call from any thread while weights and plan do not change.
  [[nodiscard]] storage::TensorMap model_between_steps() const;
  void load(const State& state, const std::string& source);

  // Call between two steps. Throws PlanRefused if some process rejects the plan, and DivergedError if the state is not
  // finite; the old plan stays in both cases. After any other error the engine is unusable.
  void apply(Plan plan);
  // Throws if apply() would certainly reject the plan in this process.
  void check_feasible(const Plan& plan) const { check_feasible(plan, options_.devices_of(plan)); }

 private:
  [[nodiscard]] ComposeOptions options_on(const DeviceChoice& where) const;
  void compose_on(const Plan& plan, const DeviceChoice& where);
  // Replaces the composition by one of `plan` with `state`. Returns the error, or null.
  std::exception_ptr recompose(const Plan& plan, const DeviceChoice& where, const State& state);
  void check_feasible(const Plan& plan, const DeviceChoice& where) const;
  [[nodiscard]] bool failed_somewhere(bool failed_here) const;

  EngineOptions options_;  // devices and threads are those of the plan
  Composition composition_;
  std::optional<TrainStep> step_;
  std::optional<BufferSnapshot> remembered_;
};

}  // namespace sluice::engine
