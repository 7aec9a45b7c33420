// update_source: where the steps of a run on a parameter server come from: updates that its workers' pushes make, in
// virtual time (virtual_workers.h) or by processes of their own (served_workers.h). Not here: the loop over updates,
// evaluation, checkpoints (loop.h). Threads: one.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include <nlohmann/json.hpp>

#include "core/error.h"
#include "engine/engine.h"
#include "train/trace/recorded_step.h"

namespace sluice::train {

class UpdateSource {
 public:
  UpdateSource() = default;
  virtual ~UpdateSource() = default;
  UpdateSource(const UpdateSource&) = delete;
  UpdateSource& operator=(const UpdateSource&) = delete;

  // Of the engine that next_update() is given.
  [[nodiscard]] virtual engine::SyncFactory sync_factory() = 0;
  // What that engine updates by: the server's rule, or a worker's where the engine plays workers.
  [[nodiscard]] virtual optim::OptimizerOptions optimizer() const = 0;
  // Takes the engine's weights as the server's, and throws where the run cannot go on. Else the first next_update()
  // does.
  virtual void begin(engine::Engine& /*engine*/) {}
  // Returns when the server has made an update. Nothing: the run was asked to stop, or cannot go on (why_over()); then
  // the engine holds the weights of the last update.
  [[nodiscard]] virtual std::optional<RecordedStep> next_update(engine::Engine& engine,
                                                                const engine::StepRequest& request) = 0;
  // Whether the engine holds the weights, running statistics and optimizer state of the last update, for an evaluation
  // or a checkpoint; it does after one for which the configuration has either.
  [[nodiscard]] virtual bool holds_weights() const = 0;
  // It is to hold them after one of the next.
  virtual void want_weights() = 0;
  // What keeps the run from going on; nothing: it was asked to stop.
  [[nodiscard]] virtual std::optional<Error> why_over() const { return std::nullopt; }

  // A checkpoint was saved; those of `steps` are there, newest first.
  virtual void saved(const std::vector<std::int64_t>& /*steps*/) {}
  // The run is done, and nothing of it is going to be saved any more.
  virtual void finish() {}
  // What was learned since the last good checkpoint is no good: the run does not go on from it.
  virtual void give_up() {}

  // For the records, when there is nothing more: what has happened since the last update.
  [[nodiscard]] virtual Events last_events() { return {}; }

  // For a checkpoint, beside the weights that the engine holds: what a resume needs. null: it cannot go on.
  [[nodiscard]] virtual nlohmann::json state() const { return nullptr; }
  [[nodiscard]] virtual nlohmann::ordered_json fields() const = 0;  // of the `ps` event at the beginning of a run
};

}  // namespace sluice::train
