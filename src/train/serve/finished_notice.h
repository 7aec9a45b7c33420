// finished_notice: server 0, restarted after its run is done, answers processes that wait for it. Threads: any. Errors:
// ConfigError if it cannot listen.
#pragma once

#include <string>
#include <thread>

#include "train/serve/server_role.h"
#include "train/setup/setup.h"

namespace sluice::train {

// Does nothing unless this process is server 0. Returns when all have acknowledged, after at most 10 s (or
// replicas.connect_timeout_s if shorter), or when a signal asks to stop.
void notify_late_workers(const Setup& setup, const ServerRole& role, const std::string& version_of_sluice);

[[nodiscard]] std::jthread notify_late_workers_in_background(const Setup& setup, const ServerRole& role,
                                                             const std::string& version_of_sluice);

}  // namespace sluice::train
