// worker_news: what became of a parameter server's workers, for the log and for metrics.jsonl. Pure but for the log.
#pragma once

#include <cstdint>
#include <vector>

#include "ps/net/network_server.h"
#include "train/serve/update_source.h"

namespace sluice::train {

void log_news(const ps::WorkerNews& news);
// After that update.
[[nodiscard]] Events events_of(const std::vector<ps::WorkerNews>& all, std::int64_t version);

}  // namespace sluice::train
