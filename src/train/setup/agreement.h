// agreement: the settings that must be equal in the processes of a run (compared by comm/processes.h). Pure.
#pragma once

#include <string>

#include "comm/processes.h"
#include "config/config.h"

namespace sluice::train {

// Sluice's version and every key, except the keys that describe one machine (device.list, data.path, ...).
[[nodiscard]] comm::Agreement agreement_of(const config::Config& config, const std::string& version);
[[nodiscard]] comm::Agreement agreement_with_server(const config::Config& config, const std::string& version);
// The part that a server compares with the log it recovers from. It drops the keys that cannot change the result of a
// logged update (the rate is in the log).
[[nodiscard]] comm::Agreement agreement_with_log(comm::Agreement agreement);

}  // namespace sluice::train
