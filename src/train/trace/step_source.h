// step_source: where the steps of a run come from: this process's engine (run/local_steps.h) or the updates of a
// parameter server (serve/update_source.h). Not here: the loop over them (run/loop.h). Threads: one.
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

  // Returns after the step that follows `steps_done`. Nothing: the run was asked to stop, or cannot go on (why_over());
  // then the engine holds the weights of the last step.
  [[nodiscard]] virtual std::optional<RecordedStep> next_step(engine::Engine& engine, std::int64_t steps_done,
                                                              double lr, const engine::StepRequest& request) = 0;
  // Whether no step follows, at the end of the run aside. is_agreed: all processes know that the run is to stop.
  [[nodiscard]] virtual bool is_over(engine::Engine& engine, bool is_agreed) const = 0;
  // What keeps the run from going on; nothing: it was asked to stop.
  [[nodiscard]] virtual std::optional<Error> why_over() const { return std::nullopt; }
  // The engine has another plan now. next: the batch of the next step.
  virtual void plan_changed(const Plan& /*before*/, const Plan& /*now*/, data::Position /*next*/) {}

  // Whether the engine holds the weights, running statistics and optimizer state of the last step, for an evaluation
  // or a checkpoint.
  [[nodiscard]] virtual bool holds_weights() const { return true; }
  // The engine is to hold them after one of the next steps.
  virtual void want_weights() {}

  // A checkpoint was saved; those of `steps` are there, newest first.
  virtual void saved(const std::vector<std::int64_t>& /*steps*/) {}
  // The run is done, and nothing of it is going to be saved any more.
  virtual void finish() {}
  // What was learned since the last good checkpoint is no good: the run does not go on from it.
  virtual void give_up() {}
  // For the records, when no step follows: what has happened since the last one.
  [[nodiscard]] virtual Events last_events() { return {}; }
};

}  // namespace sluice::train
