// memory_by_profile: prepares tune/memory_table.h (which batches fit device.memory_limit) from a configuration and a
// profile. Needs no device, data or model. Threads: any. Errors: ConfigError with the key or the file.
#pragma once

#include <string>

#include "config/config.h"
#include "profiler/layer_profile.h"
#include "tune/memory_table.h"

namespace sluice::train {

[[nodiscard]] tune::MemoryQuestion memory_question(const config::Config& config, const profiler::LayerProfile& profile,
                                                   const std::string& file, int processes);

}  // namespace sluice::train
