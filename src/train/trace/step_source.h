// step_source: interface of a run's steps: by this process's engine (run/local_steps.h) or a parameter server
// (serve/update_source.h). Threads: one.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "core/error.h"
#include "core/plan.h"
#include "data/loader.h"
#include "engine/engine.h"
#include "train/trace/recorded_step.h"

namespace sluice::train {

class StepSource {
 public:
  StepSource() = default;
  virtual ~StepSource() = default;
  StepSource(const StepSource&) = delete;
  StepSource& operator=(const StepSource&) = delete;

  // nullopt: the run was asked to stop or cannot go on (why_over()), and the engine holds the weights of the last step.
  [[nodiscard]] virtual std::optional<RecordedStep> next_step(engine::Engine& engine, std::int64_t steps_done,
                                                              double lr, const engine::StepRequest& request) = 0;
  // True if no further step follows before the planned end. is_agreed: all processes know that the run is to stop.
  [[nodiscard]] virtual bool is_over(engine::Engine& engine, bool is_agreed) const = 0;
  [[nodiscard]] virtual std::optional<Error> why_over() const { return std::nullopt; }
  // Called after the engine's plan has changed. next: position of the next step's batch.
  virtual void plan_changed(const Plan& /*before*/, const Plan& /*now*/, data::Position /*next*/) {}

  // True if the engine holds the last step's weights, running statistics and optimizer state.
  [[nodiscard]] virtual bool holds_weights() const { return true; }
  virtual void want_weights() {}

  // Called after a checkpoint was saved. steps: all existing checkpoints, newest first.
  virtual void saved(const std::vector<std::int64_t>& /*steps*/) {}
  virtual void finish() {}
  virtual void give_up() {}
  // Events since the last step, for the records. Called when no step follows.
  [[nodiscard]] virtual Events last_events() { return {}; }
};

}  // namespace sluice::train
