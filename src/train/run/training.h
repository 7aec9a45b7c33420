// training: one process's part of a run once the model is on its devices. Threads: one, besides the devices'. Errors:
// those of loop.h.
#pragma once

#include <filesystem>
#include <memory>

#include "engine/engine.h"
#include "train/plan/plan_changes.h"
#include "train/run/feature_reuse.h"
#include "train/run/loop.h"
#include "train/run/start_message.h"
#include "train/serve/update_source.h"
#include "train/setup/peers.h"

namespace sluice::train {

struct Training {
  Peers& peers;
  const Setup& setup;
  RunPlans& plans;
  const StartMessage& start;
  std::shared_ptr<FeatureReuse> features;  // null: no outputs of frozen layers are kept
  UpdateSource* updates;                   // of a parameter server; may be null
  engine::Engine& engine;
  std::filesystem::path run_dir = {};  // only in rank 0

  [[nodiscard]] const Progress& progress() const { return start.state.progress; }
};

void synchronize_start(const Training& training);

[[nodiscard]] storage::CheckpointContents contents_at(const Training& training, const Progress& progress,
                                                      const report::MetricsPosition& metrics);

// Returns the steps done. All processes call it together.
std::int64_t run_loop(const Training& training, const LoopOptions& options, Records& records);

}  // namespace sluice::train
