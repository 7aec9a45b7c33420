// recorded_step: one training step as the recorder sees it, from the request for the batch to the end of the optimizer.
// The loop and the trial steps of `sluice profile` both take their steps here, so that both break down the same thing.
// Not here: what becomes of it (loop.h, profile.h). Threads: one. Errors: those of the loader and of TrainStep::run().
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
  StepSpans spans;                          // everything since they were last collected
  std::optional<double> lr = std::nullopt;  // where it is not the loop's: a parameter server's
  // For the records, before those of the step: names of events and their fields.
  Events events = {};
};

// `step`: number of the optimizer step, from 0. Requires: a loader that is not at its end.
[[nodiscard]] RecordedStep run_recorded_step(data::Loader& loader, engine::Engine& engine, std::int64_t step, double lr,
                                             const engine::StepRequest& request = {});

}  // namespace sluice::train
