// plan_description: a plan for people and for programs: what runs where, as `train --dry-run` prints it.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "engine/compose.h"
#include "train/setup.h"

namespace sluice::train {

struct PlanDescription {
  nlohmann::ordered_json json;
  std::string text;  // lines
};

// Layers, parameters, bytes and devices per stage. `chunks_are_open`: they are measured only when training begins.
[[nodiscard]] PlanDescription describe_plan(const Setup& setup, const engine::Composition& composition,
                                            bool chunks_are_open);

}  // namespace sluice::train
