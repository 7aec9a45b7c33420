// schedule_text: parses a freeze schedule. The entry "3: 7" freezes the first 7 units from epoch 3 on, counted from 0.
// Pure. Errors: ConfigError that begins with `where` (the location and key of the list) and names the entry.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "freeze/policy.h"

namespace sluice::freeze {

// At least one entry; the epochs increase and begin at 1 or later.
[[nodiscard]] std::vector<ScheduledFreeze> parse_schedule(std::span<const std::string> entries, std::string_view where);

void require_units(std::span<const ScheduledFreeze> schedule, int units, std::string_view where);

}  // namespace sluice::freeze
