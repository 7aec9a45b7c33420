// recorded_step: one recorded training step, from the batch request to the end of the optimizer. The loop and the trial
// steps of `sluice profile` share it. Threads: one. Errors: those of the loader and of TrainStep::run().
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "core/recorder.h"
#include "data/loader.h"
#include "engine/engine.h"

namespace sluice::train {

using Events = std::vector<std::pair<std::string, nlohmann::ordered_json>>;

struct RecordedStep {
  data::Batch batch;
  StepStats stats;
  StepSpans spans;                          // everything since the last collection
  std::optional<double> lr = std::nullopt;  // set if it differs from the loop's: a parameter server's rate
  Events events = {};
};

// step: number of the optimizer step, from 0. Requires: a loader that is not at its end.
[[nodiscard]] RecordedStep run_recorded_step(data::Loader& loader, engine::Engine& engine, std::int64_t step, double lr,
                                             const engine::StepRequest& request = {});

}  // namespace sluice::train
