// orders: what rank 0 tells the other processes of a training run before the first step. A value. Not here: the text of
// pipeline.order (order.h).
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include <nlohmann/json.hpp>

#include "train/resume.h"
#include "train/step_trace.h"

namespace sluice::train {

struct Orders {
  bool trains = true;  // false: there is no step to do
  bool tries_chunks = false;
  RunState state;  // plan, changes, progress
  TracedSteps traced = {};

  [[nodiscard]] std::string to_text() const {
    return nlohmann::json{{"trains", trains},
                          {"tries_chunks", tries_chunks},
                          {"state", state.to_json()},
                          {"traced", {traced.own.first, traced.own.last, traced.torch.first, traced.torch.last}}}
        .dump();
  }
  [[nodiscard]] static Orders from_text(const std::string& text) {
    const auto json = nlohmann::json::parse(text);
    const auto traced = json.at("traced").get<std::array<std::int64_t, 4>>();
    return {json.at("trains"), json.at("tries_chunks"), RunState::from_json(json.at("state"), "rank 0's orders"),
            TracedSteps{{traced[0], traced[1]}, {traced[2], traced[3]}}};
  }
};

}  // namespace sluice::train
