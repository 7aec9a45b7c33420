// worker_events: what became of a parameter server's workers, for the log and for metrics.jsonl. Pure but for the log.
#pragma once

#include <cstdint>
#include <vector>

#include "ps/net/network_server.h"
#include "train/serve/update_source.h"

namespace sluice::train {

void log_event(const ps::WorkerEvent& event);
// After that update.
[[nodiscard]] Events events_of(const std::vector<ps::WorkerEvent>& all, std::int64_t version);

}  // namespace sluice::train
