// finished_notice: what server 0 does that is started again although its run is done: those who were started with it
// wait for it, and receive the answer that there is nothing to do. Threads: any. Errors: ConfigError if it cannot
// listen.
#pragma once

#include <string>
#include <thread>

#include "train/serve/server_role.h"
#include "train/setup/setup.h"

namespace sluice::train {

// If this process is server 0. Returns when all have said that they have heard it, after 10 s at most
// (replicas.connect_timeout_s if that is shorter), or when a signal asks to stop.
void notify_late_workers(const Setup& setup, const ServerRole& role, const std::string& version_of_sluice);

// The same in a thread; an error is a warning. `setup` and `role` outlive it.
[[nodiscard]] std::jthread notify_late_workers_in_background(const Setup& setup, const ServerRole& role,
                                                             const std::string& version_of_sluice);

}  // namespace sluice::train
