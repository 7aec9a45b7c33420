// composition: the engine's options (engine/engine.h) from a set-up.
#pragma once

#include <memory>

#include "comm/processes.h"
#include "engine/engine.h"
#include "pipeline/feature_source.h"
#include "train/setup/setup.h"

namespace sluice::train {

// processes: connects all; null if alone. features: null: keep none. Requires: `setup` outlives the engine.
[[nodiscard]] engine::EngineOptions engine_options(const Setup& setup, comm::Processes* processes = nullptr,
                                                   std::shared_ptr<pipeline::FeatureSource> features = nullptr,
                                                   engine::SyncFactory make_sync = engine::make_sync);

}  // namespace sluice::train
