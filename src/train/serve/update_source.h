// update_source: the updates of a parameter server as a run's steps; workers run in virtual time (virtual_workers.h) or
// as processes (served_workers.h). Threads: one.
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
  [[nodiscard]] virtual engine::SyncFactory sync_factory() = 0;
  // Optimizer of that engine: the server's, or a worker's if the engine plays workers.
  [[nodiscard]] virtual optim::OptimizerOptions optimizer() const = 0;
  // Loads the engine's weights into the server; throws if the run cannot go on. By default next_step() does it.
  virtual void begin(engine::Engine& /*engine*/) {}

  // The server has its own step count and rate. No other process saves, so request.before_update is dropped.
  [[nodiscard]] std::optional<RecordedStep> next_step(engine::Engine& engine, std::int64_t /*steps_done*/,
                                                      double /*lr*/, const engine::StepRequest& request) final {
    engine::StepRequest of_update = request;
    of_update.before_update = nullptr;
    auto update = next_update(engine, of_update);
    has_no_more_ = !update;
    return update;
  }
  [[nodiscard]] bool is_over(engine::Engine& /*engine*/, bool /*is_agreed*/) const final { return has_no_more_; }

  // State for a checkpoint, besides the engine's weights; null: the run cannot be resumed.
  [[nodiscard]] virtual nlohmann::json state() const { return nullptr; }
  [[nodiscard]] virtual nlohmann::ordered_json fields() const = 0;  // fields of the `ps` event

 private:
  [[nodiscard]] virtual std::optional<RecordedStep> next_update(engine::Engine& engine,
                                                                const engine::StepRequest& request) = 0;

  bool has_no_more_ = false;
};

}  // namespace sluice::train
