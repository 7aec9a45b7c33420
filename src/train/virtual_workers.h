// virtual_workers: a run on a parameter server whose workers take turns in this process, in virtual time
// (ps/virtual_cluster.h): the real server, its policy and the engine's own training step. One engine plays every
// worker: it pulls the weights before each step. Samples are leased (data/ledger.h): a worker takes the next ones,
// those that its time did not suffice for come back. After each update the engine holds the server's weights, running
// statistics and optimizer state, for evaluations and checkpoints. Not here: the loop over updates, evaluation,
// checkpoints (loop.h). Threads: one. Errors: those of the training step and of ps/virtual_cluster.h.
#pragma once

#include <memory>

#include <nlohmann/json.hpp>

#include "engine/engine.h"
#include "train/recorded_step.h"
#include "train/setup.h"

namespace sluice::train {

// ConfigError where [ps] cannot be; nothing where there is no parameter server.
void check_workers(const Setup& setup);

class VirtualWorkers {
 public:
  // `setup` outlives it.
  explicit VirtualWorkers(const Setup& setup);
  ~VirtualWorkers();
  VirtualWorkers(const VirtualWorkers&) = delete;
  VirtualWorkers& operator=(const VirtualWorkers&) = delete;

  // Of the engine that plays the workers.
  [[nodiscard]] engine::SyncFactory sync_factory();

  // Goes on until the server has made an update. The first call takes the engine's weights as the server's.
  [[nodiscard]] RecordedStep next_update(engine::Engine& engine, const engine::StepWishes& wishes);

  [[nodiscard]] nlohmann::ordered_json fields() const;  // of the `ps` event at the beginning of a run

 private:
  class State;
  std::unique_ptr<State> state_;
};

}  // namespace sluice::train
