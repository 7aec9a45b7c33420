// agreement: what the processes of a run compare before anything else: their configurations and the version of Sluice.
// Not here: the exchange (comm/processes.h). Pure.
#pragma once

#include <string>

#include "comm/processes.h"
#include "config/config.h"

namespace sluice::train {

// What must be the same in every process: the version of Sluice, and all keys of the configuration but those that say
// how one machine does its part (device.list, data.path, ...).
[[nodiscard]] comm::Agreement agreement_of(const config::Config& config, const std::string& version);
// Of a worker with its parameter server.
[[nodiscard]] comm::Agreement agreement_with_server(const config::Config& config, const std::string& version);
// Of a server with what an earlier one has logged: less what the result of an update does not depend on, since its rate
// is in the log, and these only say how the run goes on.
[[nodiscard]] comm::Agreement agreement_with_log(comm::Agreement agreement);

}  // namespace sluice::train
