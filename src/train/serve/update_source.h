// update_source: where the steps of a run on a parameter server come from: updates that its workers' pushes make, in
// virtual time (virtual_workers.h) or by processes of their own (served_workers.h). Threads: one.
#pragma once

#include <cstdint>
#include <optional>

#include <nlohmann/json.hpp>

#include "engine/engine.h"
#include "train/trace/recorded_step.h"
#include "train/trace/step_source.h"

namespace sluice::train {

class UpdateSource : public StepSource {
 public:
  // Of the engine that next_step() is given.
  [[nodiscard]] virtual engine::SyncFactory sync_factory() = 0;
  // What that engine updates by: the server's rule, or a worker's where the engine plays workers.
  [[nodiscard]] virtual optim::OptimizerOptions optimizer() const = 0;
  // Takes the engine's weights as the server's, and throws where the run cannot go on. Else the first next_step() does.
  virtual void begin(engine::Engine& /*engine*/) {}

  // The next update. The server has its own count of steps, and its own rate. No other process saves what it has
  // trained, so request.before_update is left out.
  [[nodiscard]] std::optional<RecordedStep> next_step(engine::Engine& engine, std::int64_t /*steps_done*/,
                                                      double /*lr*/, const engine::StepRequest& request) final {
    engine::StepRequest of_update = request;
    of_update.before_update = nullptr;
    auto update = next_update(engine, of_update);
    has_no_more_ = !update;
    return update;
  }
  [[nodiscard]] bool is_over(engine::Engine& /*engine*/, bool /*is_agreed*/) const final { return has_no_more_; }

  // For a checkpoint, beside the weights that the engine holds: what a resume needs. null: it cannot go on.
  [[nodiscard]] virtual nlohmann::json state() const { return nullptr; }
  [[nodiscard]] virtual nlohmann::ordered_json fields() const = 0;  // of the `ps` event at the beginning of a run

 private:
  [[nodiscard]] virtual std::optional<RecordedStep> next_update(engine::Engine& engine,
                                                                const engine::StepRequest& request) = 0;

  bool has_no_more_ = false;
};

}  // namespace sluice::train
