// machine_fit: warns about settings that are probably unintended and rejects those that cannot work on this machine or
// data. For device memory see memory_advice.h. Threads: one.
#pragma once

#include "train/setup/setup.h"

namespace sluice::train {

void warn_of_unusual_settings(const Setup& setup);

void log_own_cores(const Setup& setup);

// ConfigError if no step would end in time. Plans skip this check: they may be meant for another machine.
void refuse_too_many_threads(const Setup& setup);

void refuse_too_few_open_files(int processes);

void refuse_too_large_batch(const Setup& setup);

}  // namespace sluice::train
