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

#include <span>

#include "core/error.h"

namespace sluice::app {

struct Variable {
  const char *name, *value;
};
// Environment variables that settle_environment() sets, and why:
// - TORCH_NCCL_ASYNC_ERROR_HANDLING, TORCH_NCCL_ENABLE_MONITORING, TORCH_NCCL_RETHROW_CUDA_ERRORS: c10d's watchdog
//   threads would otherwise abort the process without an error message; comm/liveness.h detects lost processes.
// - TORCH_NCCL_DUMP_ON_TIMEOUT, TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC: otherwise the watchdog writes files to /tmp and
//   holds a lock for a minute, after an error.
// - NCCL_RUNTIME_CONNECT=0: connects all channels when a communicator is created. Otherwise the first large all-reduce
//   of a step connects them, and two processes with stages in a different order could deadlock.
// - CUDA_DEVICE_MAX_CONNECTIONS: a GPU's stages use up to 20 streams, and streams that share one of the 8 default
//   connections wait for each other.
// - TORCH_CPP_LOG_LEVEL: disables LibTorch's logs, which repeat our errors in many lines. c10::initLogging() reads it.
// - KINETO_LOG_LEVEL: LibTorch's profiler logs an error on machines without a GPU.
// - RES_OPTIONS: a DNS server that does not answer delays each lookup by 2 s, not 10 s. LibTorch's store looks up the
//   name of every address that it connects to or accepts, only for its log.
[[nodiscard]] std::span<const Variable> default_environment();
// Sets each variable of default_environment() that the user has not set. Call it before CUDA and LibTorch start.
void settle_environment();

// Makes writes beyond the limit on file sizes (SIGXFSZ) fail instead of ending the process.
void refuse_too_large_files();
// The same for writes to a closed pipe (SIGPIPE).
void turn_broken_pipes_into_errors();

// Ends the process at once with the error's line and exit code, from any thread. No destructor runs, because other
// threads may hang. The line is also written to torchrun's TORCHELASTIC_ERROR_FILE if that is set.
[[noreturn]] void end_with(const Error& error);

}  // namespace sluice::app
