// machine_fit: whether a run suits the machine and the data it is to run with: what is hardly meant gives a warning,
// what would never end an error. Not here: memory of the devices (memory_advice.h). Threads: one.
#pragma once

#include "train/setup/setup.h"

namespace sluice::train {

// Warns of what can be done and is hardly meant: a batch larger than the data set, far more threads than cores.
void warn_of_unusual_settings(const Setup& setup);

// Says with how many threads this process computes if it shares its cores.
void log_own_cores(const Setup& setup);

// ConfigError for so many threads that no step would end in time. Not for plans: they may be another machine's.
void refuse_too_many_threads(const Setup& setup);

// OutOfMemoryError if this process may open fewer files and sockets than a run of so many processes needs at least.
void refuse_too_few_open_files(int processes);

// OutOfMemoryError where a process's share of one batch is larger than the memory of this machine.
void refuse_too_large_batch(const Setup& setup);

}  // namespace sluice::train
