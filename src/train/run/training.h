// training: one process's part of a run once the model is on its devices. Threads: one, besides the devices'. Errors:
// those of loop.h.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include <nlohmann/json.hpp>

#include "engine/engine.h"
#include "train/plan/plan_changes.h"
#include "train/run/feature_reuse.h"
#include "train/run/loop.h"
#include "train/run/survivor.h"
#include "train/serve/update_source.h"
#include "train/setup/constants.h"
#include "train/setup/peers.h"
#include "train/setup/run_state.h"
#include "train/trace/traced_steps.h"

namespace sluice::train {

// Rank 0's message to the other processes before the first step.
struct StartMessage {
  bool trains = true;  // false: no step is left
  bool tries_chunks = false;
  RunState state;  // plan, changes and progress; rank 0's also has configuration and data
  TracedSteps traced = {};
  Constants constants = {};
  RunDirId run_dir_id = {};
  std::int64_t score_every_steps = 1;  // rank 0's log.every, if the task counts only in logged steps

  [[nodiscard]] std::string to_text() const {
    return nlohmann::json{{"trains", trains},
                          {"tries_chunks", tries_chunks},
                          {"state", state.to_json()},
                          {"traced", traced.own.to_json()},
                          {"traced_by_torch", traced.torch.to_json()},
                          {"constants", constants.to_json()},
                          {"place", run_dir_id.to_json()},
                          {"score_every_steps", score_every_steps}}
        .dump();
  }
  [[nodiscard]] static StartMessage from_text(const std::string& text) {
    const auto json = nlohmann::json::parse(text);
    return {json.at("trains"),
            json.at("tries_chunks"),
            RunState::from_json(json.at("state"), "rank 0's start message"),
            TracedSteps{StepRange::from_json(json.at("traced")), StepRange::from_json(json.at("traced_by_torch"))},
            Constants::from_json(json.at("constants"), "rank 0's start message"),
            RunDirId::from_json(json.at("place")),
            json.at("score_every_steps")};
  }
};

// What a process keeps in memory when the group loses a process: the state after its last whole step.
struct KeptState {
  Progress progress;
  storage::CheckpointContents contents;
};

struct Training {
  Peers& peers;
  const Setup& setup;
  RunPlans& plans;
  const StartMessage& start;
  std::shared_ptr<FeatureReuse> features;  // null: no outputs of frozen layers are kept
  UpdateSource* updates;                   // of a parameter server; may be null
  engine::Engine& engine;
  std::filesystem::path run_dir;   // only in rank 0
  std::optional<KeptState>& kept;  // filled when the group loses a process

  [[nodiscard]] const Progress& progress() const { return start.state.progress; }
};

void synchronize_start(const Training& training);

[[nodiscard]] storage::CheckpointContents contents_at(const Training& training, const Progress& progress,
                                                      const report::MetricsPosition& metrics);

// All processes call it together. finish: called after the last step, with the steps done. If rank 0 is lost in it, the
// others go on (replicas.elastic).
void run_loop(const Training& training, LoopOptions options, Records& records,
              const std::function<void(std::int64_t)>& finish);

}  // namespace sluice::train
