// was_done: what server 0 does that is started again although its run is done: those who were started with it wait for
// it, and hear that there is nothing to do. Threads: one. Errors: ConfigError where it cannot listen.
#pragma once

#include <string>

#include "train/server_place.h"
#include "train/setup.h"

namespace sluice::train {

// Where this process is server 0. Until all have been told, not for long, or until a signal asks to stop.
void tell_that_it_was_done(const Setup& setup, const ServerPlace& place, const std::string& version_of_sluice);

}  // namespace sluice::train
