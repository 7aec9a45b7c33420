// composition: from a set-up to what the engine needs (engine/engine.h): layers, devices, optimizer, limits, messages.
#pragma once

#include <memory>

#include "comm/processes.h"
#include "engine/engine.h"
#include "pipeline/feature_source.h"
#include "train/setup/setup.h"

namespace sluice::train {

// `processes` connects to the others; null where there are none. features: of frozen layers; null: nothing is kept.
// Requires: `setup` outlives the engine.
[[nodiscard]] engine::EngineOptions engine_options(const Setup& setup, comm::Processes* processes = nullptr,
                                                   std::shared_ptr<pipeline::FeatureSource> features = nullptr,
                                                   engine::SyncFactory make_sync = engine::make_sync);

}  // namespace sluice::train
