// ending: how a run ends at its servers: what they tell others of it, and what they say last in their own log.
// Pure but for the log.
#pragma once

#include <cstdint>

#include "core/error.h"
#include "ps/net/messages.h"

namespace sluice::train {

// As messages have it.
[[nodiscard]] ps::Over ending_of(const Error& error);

// What others are told where there is no error that says more: a server was asked to stop, or its process fails.
[[nodiscard]] Error it_was_stopped();
[[nodiscard]] Error it_has_failed();

// Messages that a server could not take, of which the log has the first one only. Nothing is said where there is none.
void log_malformed(std::int64_t messages);

}  // namespace sluice::train
