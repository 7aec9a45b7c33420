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

// Returns the changes in step order. Errors: ConfigError that names the entry: unreadable, a key that a change cannot
// set, a value out of range, a step that is not above the previous one, or contradicting settings.
[[nodiscard]] std::vector<Change> changes_of(const Config& config, const Sources& sources = {"configuration", {}});

}  // namespace sluice::config
