// ending: messages and log lines at the end of a run with parameter servers. Threads: any.
#pragma once

#include <cstdint>

#include "core/error.h"
#include "ps/net/messages.h"

namespace sluice::train {

[[nodiscard]] ps::Over ending_of(const Error& error);

[[nodiscard]] Error it_was_stopped();
[[nodiscard]] Error it_has_failed();

// Logs the number of malformed messages, unless it is 0. (The log had only the first of them.)
void log_malformed(std::int64_t messages);

}  // namespace sluice::train
