// start_message: rank 0's message to the other processes before the first step. A value.
#pragma once

#include <string>

#include <nlohmann/json.hpp>

#include "train/run/survivor.h"
#include "train/setup/constants.h"
#include "train/setup/run_state.h"
#include "train/trace/traced_steps.h"

namespace sluice::train {

struct StartMessage {
  bool trains = true;  // false: no step is left
  bool tries_chunks = false;
  RunState state;  // plan, changes and progress; rank 0's also has configuration and data
  TracedSteps traced = {};
  Constants constants = {};
  RunDirId run_dir_id = {};

  [[nodiscard]] std::string to_text() const {
    return nlohmann::json{{"trains", trains},
                          {"tries_chunks", tries_chunks},
                          {"state", state.to_json()},
                          {"traced", traced.own.to_json()},
                          {"traced_by_torch", traced.torch.to_json()},
                          {"constants", constants.to_json()},
                          {"place", run_dir_id.to_json()}}
        .dump();
  }
  [[nodiscard]] static StartMessage from_text(const std::string& text) {
    const auto json = nlohmann::json::parse(text);
    return {json.at("trains"),
            json.at("tries_chunks"),
            RunState::from_json(json.at("state"), "rank 0's orders"),
            TracedSteps{StepRange::from_json(json.at("traced")), StepRange::from_json(json.at("traced_by_torch"))},
            Constants::from_json(json.at("constants"), "rank 0's orders"),
            RunDirId::from_json(json.at("place"))};
  }
};

}  // namespace sluice::train
