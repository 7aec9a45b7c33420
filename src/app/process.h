// process: process settings required before LibTorch runs.
// The first part runs before main() and before the initialisers of the libraries, which take 0.3 s:
// - Opens closed standard descriptors on /dev/null. Otherwise the next file or socket would get such a number, and log
//   lines would be written into it.
// - Raises the soft limits on open files and stacks as far as the hard limits allow; threads get stacks of 8 MiB. A
//   stack too small to initialise LibTorch is an error.
// - Restarts the program with GOMP_SPINCOUNT if it is not set. OpenMP reads it at load time; by default its threads
//   spin for long, which takes cores from other threads. Stop signals stay blocked meanwhile.
// - Makes `train`, `serve`, `tune` and `memory` exit with 130 on a stop signal before their own handlers are installed
//   (train/setup/stop_signal.h). Other commands end by the signal itself.
// Also defines pthread_create(): OpenMP and ZeroMQ end the process without an error if the system has no more threads.
// This version ends it with an error line and exit code.
#pragma once

#include "core/error.h"

namespace sluice::app {

// Sets these variables if the user has not set them:
// - TORCH_CPP_LOG_LEVEL: disables LibTorch's logs, which repeat our errors in many lines. c10::initLogging() reads it.
// - TORCH_NCCL_ASYNC_ERROR_HANDLING: disables c10d's NCCL watchdog, which would abort the process without an error;
//   comm/liveness.h detects lost processes.
// - NCCL_RUNTIME_CONNECT=0: connects all channels when a communicator is created. Otherwise the first large all-reduce
//   of a step connects them, and two processes with stages in a different order could deadlock.
// - RES_OPTIONS: a DNS server that does not answer delays each lookup by 2 s, not 10 s. LibTorch's store looks up the
//   name of every address that it connects to or accepts, only for its log.
void settle_environment();

// Makes writes beyond the limit on file sizes (SIGXFSZ) fail instead of ending the process.
void refuse_too_large_files();
// The same for writes to a closed pipe (SIGPIPE).
void turn_broken_pipes_into_errors();

// Ends the process at once with the error's line and exit code, from any thread. No destructor runs, because other
// threads may hang. The line is also written to torchrun's TORCHELASTIC_ERROR_FILE if that is set.
[[noreturn]] void end_with(const Error& error);

}  // namespace sluice::app
