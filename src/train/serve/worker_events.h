// worker_events: events of a parameter server's workers for the log and metrics.jsonl. Pure but for the log.
#pragma once

#include <cstdint>
#include <vector>

#include "ps/net/network_server.h"
#include "train/serve/update_source.h"

namespace sluice::train {

void log_event(const ps::WorkerEvent& event);
// version: of the update that the events precede.
[[nodiscard]] Events events_of(const std::vector<ps::WorkerEvent>& all, std::int64_t version);

}  // namespace sluice::train
