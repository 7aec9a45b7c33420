// plan_description: a plan as text and JSON, as `train --dry-run` prints it.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "engine/compose.h"
#include "train/setup/setup.h"

namespace sluice::train {

struct PlanDescription {
  nlohmann::ordered_json json;
  std::string text;
};

// "2 stages x 1 replica, schedule 1f1b, 4 chunks, layers 3 4"; replicas of one process.
[[nodiscard]] std::string in_words(const Plan& plan);
[[nodiscard]] std::string layers_in_words(const Partition& partition);  // "3 4"
[[nodiscard]] std::string percentages(const std::vector<int>& shares);  // "67 % 33 %"

// Layers, parameters, bytes and devices per stage. chunks_are_open: they are measured when training begins.
[[nodiscard]] PlanDescription describe_plan(const Setup& setup, const engine::Composition& composition,
                                            bool chunks_are_open);

}  // namespace sluice::train
