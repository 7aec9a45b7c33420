// changes: parses pipeline.changes into the settings of each part of a run. "20: stages = 2" changes one setting after
// step 20; all other settings stay. train/plan/plan_changes.h makes the plans.
#pragma once

#include <cstdint>
#include <vector>

#include "config/config.h"
#include "config/rules.h"

namespace sluice::config {

struct Change {
  std::int64_t after = 0;
  Config config;
};

// In step order. Errors: ConfigError that names the entry.
[[nodiscard]] std::vector<Change> changes_of(const Config& config, const Sources& sources = {"configuration", {}});

}  // namespace sluice::config
