// server_run: the updates of a parameter server as the steps of a run, and the server's state as the engine's, in
// virtual time or not. Not here: its settings (server_settings.h). Pure but for the log. Threads: any.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "data/ledger.h"
#include "data/sample_reader.h"
#include "engine/engine.h"
#include "ps/push.h"
#include "ps/server.h"
#include "train/setup/setup.h"
#include "train/trace/recorded_step.h"

namespace sluice::train {

// What a worker was given, as one batch.
[[nodiscard]] pipeline::MicroBatch read_lease(data::SampleReader& reader, const data::Lease& lease);

// The engine's optimizer as a server's, by shards.
[[nodiscard]] std::vector<std::pair<std::string, std::vector<at::Tensor>>> optimizer_in(const engine::Engine& engine,
                                                                                        const ps::Layout& layout);

// An update as the step of a run: all but its spans. Its events are a `push` for each push, in their order. What the
// experiments that it comes from print of it is in the log.
struct UpdateMade {
  const ps::UpdateRecord& done;
  const std::vector<ps::PushDone>& pushes;
  ps::ServerProgress before;
  ps::ServerProgress after;
  double seconds = 0;  // since the one before
  bool counts_correct = true;
};
[[nodiscard]] RecordedStep step_of(const Setup& setup, const UpdateMade& update);

// Into the engine: weights, running statistics and, where the server has any, optimizer state.
void load_from_server(engine::Engine& engine, const ps::Layout& layout, const ps::ServerState& state);

}  // namespace sluice::train
