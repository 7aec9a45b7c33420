// schedule_text: a freeze schedule as it is written. "3: 7" freezes the first 7 units from epoch 3 on (epochs count
// from 0); an entry that is not there is "0: 0". Pure.
// Errors: ConfigError that begins with `where`, the place and key of the list, and names the entry.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "freeze/policy.h"

namespace sluice::freeze {

// One entry or more, by increasing epoch from 1 on.
[[nodiscard]] std::vector<ScheduledFreeze> parse_schedule(std::span<const std::string> entries, std::string_view where);

// Throws where an entry freezes more units than the model has.
void require_units(std::span<const ScheduledFreeze> schedule, int units, std::string_view where);

}  // namespace sluice::freeze
