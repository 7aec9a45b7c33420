// server_run: converts a parameter server's updates to steps, and its state to the engine's. Threads: any.
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

[[nodiscard]] pipeline::MicroBatch read_lease(data::SampleReader& reader, const data::Lease& lease,
                                              const task::Task& task);

[[nodiscard]] std::vector<std::pair<std::string, std::vector<at::Tensor>>> optimizer_in(const engine::Engine& engine,
                                                                                        const ps::Layout& layout);

// The resulting step lacks spans; its events are one `push` for each push, in order.
struct UpdateMade {
  const ps::UpdateRecord& done;
  const std::vector<ps::PushDone>& pushes;
  ps::ServerProgress before;
  ps::ServerProgress after;
  double seconds = 0;
  bool counts_scores = true;
};
[[nodiscard]] RecordedStep step_of(const Setup& setup, const UpdateMade& update);

void load_from_server(engine::Engine& engine, const ps::Layout& layout, const ps::ServerState& state);

}  // namespace sluice::train
