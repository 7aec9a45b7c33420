// server_events: messages, log lines and events of a run with parameter servers. Threads: any.
#pragma once

#include <cstdint>
#include <vector>

#include "core/error.h"
#include "ps/net/network_server.h"
#include "train/serve/update_source.h"

namespace sluice::train {

[[nodiscard]] ps::Over ending_of(const Error& error);

[[nodiscard]] Error it_was_stopped();
[[nodiscard]] Error it_has_failed();

// Logs the number of malformed messages, unless it is 0. (The log had only the first of them.)
void log_malformed(std::int64_t messages);

void log_event(const ps::WorkerEvent& event);
// version: of the update that the events precede.
[[nodiscard]] Events events_of(const std::vector<ps::WorkerEvent>& all, std::int64_t version);

}  // namespace sluice::train
